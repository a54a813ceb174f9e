#include "nereus/app/config/values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

// Largest first: the first that divides a size is how it is written.
constexpr std::array<std::pair<const char*, double>, 9> kUnits = {{{"TiB", 1099511627776.0},
                                                                   {"GiB", 1073741824.0},
                                                                   {"MiB", 1048576.0},
                                                                   {"KiB", 1024.0},
                                                                   {"TB", 1e12},
                                                                   {"GB", 1e9},
                                                                   {"MB", 1e6},
                                                                   {"KB", 1e3},
                                                                   {"B", 1.0}}};

StageSetting stage_setting(const YAML::Node& node) {
  StageSetting stage;
  for (const auto& entry : node) {
    const auto key = entry.first.as<std::string>();
    if (key == "tp") {
      stage.tp = entry.second.as<int>();
    } else if (key == "pp") {
      stage.pp = entry.second.as<int>();
    } else if (key == "dp") {
      stage.dp = entry.second.as<int>();
    } else if (key == "micro_batch") {
      stage.micro_batch = entry.second.as<int>();
    } else if (key == "recompute") {
      stage.recompute = entry.second.as<bool>();
    } else if (key == "waves") {
      stage.waves = entry.second.as<int>();
    } else {
      throw Error(ErrorCode::kInvalidInput,
                  "unknown \"" + key +
                      "\" in a stage's plan: tp, pp, dp, micro_batch, recompute, "
                      "waves");
    }
  }
  return stage;
}

}  // namespace

Bytes parse_bytes(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  std::string unit(parsed.ptr, end);
  unit.erase(0, unit.find_first_not_of(' '));
  if (unit.empty()) unit = "B";
  if (parsed.ec == std::errc() && number >= 0) {
    for (const auto& [name, size] : kUnits) {
      if (unit == name && number * size < 9e18) {
        return Bytes(static_cast<int64_t>(std::llround(number * size)));
      }
    }
  }
  throw Error(ErrorCode::kInvalidInput,
              "\"" + text + "\" is no size: write e.g. 48MiB, 1.5GiB, 80GB or a number of bytes");
}

std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), written.ptr};
}

}  // namespace nereus

namespace YAML {

using nereus::Bytes;
using nereus::PlanSetting;
using nereus::StepSchedule;
using nereus::SupplySetting;

Node convert<Bytes>::encode(Bytes bytes) {
  for (const auto& [name, size] : nereus::kUnits) {
    const auto unit = static_cast<int64_t>(size);
    if (bytes.count() != 0 && bytes.count() % unit == 0) {
      return Node(std::to_string(bytes.count() / unit) + name);
    }
  }
  return Node("0B");
}

bool convert<Bytes>::decode(const Node& node, Bytes& bytes) {
  bytes = nereus::parse_bytes(node.as<std::string>());
  return true;
}

Node convert<std::filesystem::path>::encode(const std::filesystem::path& path) {
  return Node(path.string());
}

bool convert<std::filesystem::path>::decode(const Node& node, std::filesystem::path& path) {
  path = node.as<std::string>();
  return true;
}

Node convert<std::optional<double>>::encode(const std::optional<double>& number) {
  return number ? Node(nereus::shortest(*number)) : Node(NodeType::Null);
}

bool convert<std::optional<double>>::decode(const Node& node, std::optional<double>& number) {
  number = node.as<double>();
  return true;
}

Node convert<StepSchedule>::encode(const StepSchedule& schedule) {
  if (schedule.entries.size() == 1 && schedule.entries[0].first == 0) {
    return Node(schedule.entries[0].second);
  }
  Node list(NodeType::Sequence);
  for (const auto& [step, value] : schedule.entries) {
    Node pair(NodeType::Sequence);
    pair.push_back(step);
    pair.push_back(value);
    list.push_back(pair);
  }
  return list;
}

bool convert<StepSchedule>::decode(const Node& node, StepSchedule& schedule) {
  schedule.entries.clear();
  if (node.IsScalar()) {
    schedule.entries.emplace_back(0, node.as<int64_t>());
    return true;
  }
  for (const Node& entry : node) {
    if (!entry.IsSequence() || entry.size() != 2) return false;
    schedule.entries.emplace_back(entry[0].as<int>(), entry[1].as<int64_t>());
  }
  return node.IsSequence();
}

Node convert<SupplySetting>::encode(const SupplySetting& supply) {
  if (!supply.file.empty()) return Node(supply.file.string());
  if (supply.counts.entries.empty()) return Node(NodeType::Null);
  return Node(supply.counts);
}

bool convert<SupplySetting>::decode(const Node& node, SupplySetting& supply) {
  if (node.IsScalar()) {
    supply = {.file = node.as<std::string>()};
  } else {
    supply = {.counts = node.as<StepSchedule>()};
  }
  return true;
}

Node convert<PlanSetting>::encode(const PlanSetting& plan) {
  if (plan.empty()) return Node(NodeType::Null);
  if (!plan.file.empty()) return Node(plan.file.string());
  Node stages(NodeType::Map);
  for (const auto& [name, stage] : plan.stages) {
    Node node(NodeType::Map);
    node["tp"] = stage.tp;
    node["pp"] = stage.pp;
    node["dp"] = stage.dp;
    node["micro_batch"] = stage.micro_batch;
    node["recompute"] = stage.recompute;
    node["waves"] = stage.waves;
    stages[name] = node;
  }
  return stages;
}

bool convert<PlanSetting>::decode(const Node& node, PlanSetting& plan) {
  plan = {};
  if (node.IsScalar()) plan.file = node.as<std::string>();
  for (const auto& entry : node) {
    if (!entry.second.IsDefined() || !entry.second.IsMap()) return false;
    plan.stages[entry.first.as<std::string>()] = nereus::stage_setting(entry.second);
  }
  return !plan.empty();
}

}  // namespace YAML
