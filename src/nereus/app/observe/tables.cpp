#include "nereus/app/observe/tables.h"

#include <algorithm>
#include <map>

#include "nereus/core/base/text.h"

namespace nereus {

namespace {

// Characters, not bytes: UTF-8 continuation bytes take no column.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string render_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(i + 1 < row.size() ? widths[i] - width(row[i]) + 2 : 0, ' ');
    }
    text += line + "\n";
  }
  return text;
}

std::string span_of(const std::vector<DeviceId>& devices) {
  constexpr size_t kFew = 4;
  std::vector<std::string> names;
  for (DeviceId device : devices) names.push_back(to_string(device));
  if (names.size() <= kFew) return join(names, " ");
  return names.front() + " … " + names.back() + " (" + std::to_string(names.size()) + ")";
}

std::string short_stage(const StagePlan& stage) {
  constexpr size_t kMostListed = 16;
  const std::vector<DeviceId> devices = devices_of({{stage}}).devices();
  std::string text = to_string(stage);
  if (devices.size() <= kMostListed) return text;
  return text.substr(0, text.find('[')) + span_of(devices);
}

std::string render_memory(const MemoryPrediction& memory, const Cluster& cluster) {
  std::vector<std::string> components;
  std::map<DeviceId, std::map<std::string, Bytes>> cells;
  for (const MemoryEntry& entry : memory.entries) {
    if (std::ranges::find(components, entry.component) == components.end()) {
      components.push_back(entry.component);
    }
    Bytes& cell = cells[entry.device][entry.component];
    cell = entry.resident ? cell + entry.bytes : std::max(cell, entry.bytes);
  }
  std::vector<std::pair<std::vector<std::string>, std::vector<DeviceId>>> groups;
  for (const auto& [device, peak] : memory.peak) {
    std::vector<std::string> row;
    for (const std::string& component : components) {
      row.push_back(to_string(cells[device][component]));
    }
    row.push_back(to_string(peak));
    row.push_back(to_string(is_host_memory(device)
                                ? cluster.hosts.at(static_cast<size_t>(device.host)).memory
                                : cluster.device.memory));
    const auto same = std::ranges::find(groups, row, [](const auto& group) { return group.first; });
    if (same == groups.end()) {
      groups.push_back({row, {device}});
    } else {
      same->second.push_back(device);
    }
  }
  std::vector<std::vector<std::string>> rows{{"devices"}};
  rows[0].insert(rows[0].end(), components.begin(), components.end());
  rows[0].insert(rows[0].end(), {"peak", "capacity"});
  for (auto& [row, devices] : groups) {
    row.insert(row.begin(), span_of(devices));
    rows.push_back(std::move(row));
  }
  return render_table(rows);
}

}  // namespace nereus
