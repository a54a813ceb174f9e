// Option types to and from YAML (yaml-cpp's own conversion hooks), and what people call them.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <type_traits>

#include "nereus/app/config/config.h"

namespace nereus {

// "48MiB", "1.5 GiB", "80GB", or plain bytes. Throws Error(kInvalidInput).
Bytes parse_bytes(const std::string& text);
// The shortest text that reads back to the same number.
std::string shortest(double value);

// Completes "expected …" for each option type.
template <class T>
std::string expected() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, int64_t>) return "a whole number";
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>)
    return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, Bytes>) return "a size, e.g. 48MiB";
  if constexpr (std::is_same_v<T, std::filesystem::path>) return "a path";
  if constexpr (std::is_same_v<T, std::vector<int>>) return "a whole number or a list of them";
  if constexpr (std::is_same_v<T, std::vector<double>>) return "a list of numbers";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a word or a list of words";
  if constexpr (std::is_same_v<T, StepSchedule>)
    return "a whole number, or a list of [first step, value]";
  if constexpr (std::is_same_v<T, SupplySetting>)
    return "a trace file, or a list of [first step, devices]";
  if constexpr (std::is_same_v<T, PlanSetting>)
    return "a plan file, or for each model-stage or \"all\": {tp, pp, dp, micro_batch, recompute, "
           "waves}";
}

// The YAML of a value; numbers in their shortest form.
template <class T>
YAML::Node to_node(const T& value) {
  if constexpr (std::is_same_v<T, double>) {
    return YAML::Node(shortest(value));
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    YAML::Node list(YAML::NodeType::Sequence);
    for (double number : value) list.push_back(shortest(number));
    return list;
  } else {
    return YAML::Node(value);
  }
}

}  // namespace nereus

// decode() returns false if the node does not hold such a value.
template <>
struct YAML::convert<nereus::Bytes> {
  static Node encode(nereus::Bytes bytes);
  static bool decode(const Node& node, nereus::Bytes& bytes);
};
template <>
struct YAML::convert<std::filesystem::path> {
  static Node encode(const std::filesystem::path& path);
  static bool decode(const Node& node, std::filesystem::path& path);
};
template <>
struct YAML::convert<std::optional<double>> {
  static Node encode(const std::optional<double>& number);
  static bool decode(const Node& node, std::optional<double>& number);
};
template <>
struct YAML::convert<nereus::StepSchedule> {
  static Node encode(const nereus::StepSchedule& schedule);
  static bool decode(const Node& node, nereus::StepSchedule& schedule);
};
template <>
struct YAML::convert<nereus::SupplySetting> {
  static Node encode(const nereus::SupplySetting& supply);
  static bool decode(const Node& node, nereus::SupplySetting& supply);
};
template <>
struct YAML::convert<nereus::PlanSetting> {
  static Node encode(const nereus::PlanSetting& plan);
  static bool decode(const Node& node, nereus::PlanSetting& plan);
};
