#include "nereus/app/config/changes.h"

#include <map>

#include "nereus/app/config/yaml_text.h"
#include "nereus/core/base/error.h"

namespace nereus {

namespace {

void flatten(const YAML::Node& node, const std::string& prefix,
             std::map<std::string, std::string>& values) {
  if (!node.IsMap()) {
    YAML::Emitter text;
    text << YAML::Flow << node;
    values[prefix] = text.c_str();
    return;
  }
  for (const auto& entry : node) {
    const auto key = entry.first.Scalar();
    flatten(entry.second, prefix.empty() ? key : prefix + "." + key, values);
  }
}

std::map<std::string, std::string> values_of(const std::string& yaml) {
  std::map<std::string, std::string> values;
  try {
    flatten(load_yaml(yaml, "config.yaml"), "", values);
  } catch (const Error&) {
    values.clear();  // not ours, or cut off: nothing can be said about it
  }
  return values;
}

}  // namespace

std::vector<std::string> changed_settings(const std::string& before, const Config& now) {
  const std::map<std::string, std::string> old_values = values_of(before);
  std::vector<std::string> changes;
  for (const auto& [key, value] : values_of(to_yaml(now))) {
    const auto old_value = old_values.find(key);
    if (key == "trainer.resume_mode" || key == "trainer.default_local_dir") continue;
    if (old_value == old_values.end()) continue;
    if (old_value->second != value) {
      changes.push_back(key + " " + old_value->second + " → " + value);
    }
  }
  return changes;
}

}  // namespace nereus
