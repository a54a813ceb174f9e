#include "nereus/app/compare/foreign_reader.h"

#include <algorithm>
#include <charconv>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/core/cluster/limits.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& why) {
  constexpr size_t kLongest = 200;
  const auto clipped = [](const std::string& text) {
    return text.size() > kLongest ? shown(text, kLongest) : text;
  };
  throw Error(ErrorCode::kInvalidInput, clipped(key) + " = " + clipped(value) + ": " + why);
}

bool matches(const IgnoreRule& rule, const std::string& key) {
  return std::ranges::any_of(rule.patterns, [&](const std::string& pattern) {
    if (pattern.starts_with('*')) return key.find(pattern.substr(1)) != std::string::npos;
    return key.starts_with(pattern);
  });
}

}  // namespace

std::optional<std::string> ForeignReader::text(const std::string& key) {
  read_.insert(key);
  std::string from = key;
  constexpr int kMostReferences = 8;  // a circle of them is no value
  for (int i = 0; i < kMostReferences; ++i) {
    const auto found = keys_.find(from);
    if (found == keys_.end()) return std::nullopt;
    const std::string& value = found->second;
    if (value.empty() || value == "null" || value == "None") return std::nullopt;
    if (!value.starts_with("${")) return value;
    from = value.substr(2, value.size() - 3);
  }
  return std::nullopt;
}

std::optional<int64_t> ForeignReader::number(const std::string& key) {
  const std::optional<std::string> value = text(key);
  if (!value) return std::nullopt;
  int64_t number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end || number < 1) {
    refuse(key, *value,
           value->starts_with('$') ? "a variable; write its value"
                                   : "must be a whole number, 1 or "
                                     "more");
  }
  return number;
}

int ForeignReader::number(const std::string& key, int otherwise) {
  const int64_t value = number(key).value_or(otherwise);
  if (value > kMostDevices) {
    refuse(key, std::to_string(value),
           "too large; 1 to " + std::to_string(kMostDevices) + " are legal");
  }
  return static_cast<int>(value);
}

bool ForeignReader::flag(const std::string& key, bool otherwise) {
  const std::optional<std::string> value = text(key);
  if (!value) return otherwise;
  std::string word = *value;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word != "true" && word != "false") refuse(key, *value, "must be true or false");
  return word == "true";
}

bool ForeignReader::has_section(const std::string& prefix) const {
  const auto first = keys_.lower_bound(prefix);
  return first != keys_.end() && first->first.starts_with(prefix);
}

void ForeignReader::require_one(const std::string& key, const std::string& why) {
  const int64_t value = number(key).value_or(1);
  if (value != 1) refuse(key, std::to_string(value), why);
}

void ForeignReader::approximate(const std::string& key, const std::string& note) {
  const KeyNote entry{key, note};
  if (std::ranges::find(approximated_, entry) == approximated_.end()) {
    approximated_.push_back(entry);
  }
}

void ForeignReader::finish(std::span<const IgnoreRule> rules, ForeignSetting& setting) const {
  setting.approximated = approximated_;
  for (const auto& [key, value] : keys_) {
    if (read_.contains(key)) continue;
    const auto rule = std::ranges::find_if(rules, [&](const auto& r) { return matches(r, key); });
    if (rule != rules.end()) {
      setting.ignored.push_back({key, rule->why});
    } else {
      setting.unknown.push_back({key, suggestion(key)});
    }
  }
}

std::string ForeignReader::suggestion(const std::string& key) const {
  const size_t section = key.rfind('.') + 1;
  std::vector<std::string> names;
  for (const std::string& known : read_) {
    if (known.rfind('.') + 1 == section && known.starts_with(key.substr(0, section))) {
      names.push_back(known.substr(section));
    }
  }
  const std::string meant = nearest(key.substr(section), names);
  return meant.empty() ? "" : "did you mean " + meant + "?";
}

}  // namespace nereus
