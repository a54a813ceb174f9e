#include "nereus/runtime/supply/schedule.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

// The last entry whose step is not after `step`.
template <class Entries>
const auto& entry_at(const Entries& entries, int step) {
  const auto after = std::upper_bound(entries.begin(), entries.end(), step,
                                      [](int s, const auto& entry) { return s < entry.first; });
  NEREUS_CHECK(after != entries.begin(), "a schedule starts at step 0");
  return std::prev(after)->second;
}

int parse_int(std::string_view text, const std::string& where) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorCode::kInvalidInput,
                where + ": " + shown(text) + " is not a whole number up to 2147483647");
  }
  return value;
}

std::string trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

}  // namespace

int64_t LengthSchedule::at(int step) const { return entry_at(limits, step); }

int64_t LengthSchedule::longest() const {
  return std::max_element(limits.begin(), limits.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->second;
}

DevicePool SupplySchedule::at(int step) const { return entry_at(pools, step); }

SupplySchedule constant_supply(const Cluster& cluster) { return {{{0, all_devices(cluster)}}}; }

SupplySchedule supply_of_counts(const Cluster& cluster,
                                const std::vector<std::pair<int, int>>& counts) {
  const std::vector<DeviceId> all = all_devices(cluster).devices();
  const int total = static_cast<int>(all.size());
  SupplySchedule supply;
  int previous = -1;
  for (const auto& [step, count] : counts) {
    if (step <= previous || (previous < 0 && step != 0)) {
      throw Error(ErrorCode::kInvalidInput, "supply trace: step " + std::to_string(step) +
                                                " after " + std::to_string(previous) +
                                                "; steps must start at 0 and increase");
    }
    if (count < 0 || count > total) {
      throw Error(ErrorCode::kInvalidInput, "supply trace: " + std::to_string(count) +
                                                " devices at step " + std::to_string(step) +
                                                "; the cluster has " + std::to_string(total));
    }
    supply.pools.emplace_back(step, DevicePool(std::vector(all.begin(), all.begin() + count)));
    previous = step;
  }
  if (supply.pools.empty()) {
    throw Error(ErrorCode::kInvalidInput, "supply trace: no entries; give at least \"0,devices\"");
  }
  return supply;
}

SupplySchedule read_supply_trace(const Cluster& cluster, const std::filesystem::path& file) {
  std::vector<std::pair<int, int>> counts;
  int line_number = 0;
  for (const std::string& raw : split(read_text(file), '\n')) {
    ++line_number;
    const std::string line = trim(raw);
    if (line.empty() || line[0] == '#' || line == "step,devices") continue;
    const std::string where = file.string() + ":" + std::to_string(line_number);
    const std::vector<std::string> fields = split(line, ',');
    if (fields.size() != 2) {
      throw Error(ErrorCode::kInvalidInput,
                  where + ": " + shown(line) + " is not of the form step,devices");
    }
    counts.emplace_back(parse_int(trim(fields[0]), where), parse_int(trim(fields[1]), where));
  }
  try {
    return supply_of_counts(cluster, counts);
  } catch (const Error& error) {
    throw Error(error.code(), file.string() + ": " + error.what());
  }
}

}  // namespace nereus
