#include "nereus/core/plan/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "nereus/core/base/text.h"

namespace nereus {

std::string to_string(Layout layout) {
  std::string text = "tp" + std::to_string(layout.tp) + "·pp" + std::to_string(layout.pp);
  if (layout.ep > 1) text += "·ep" + std::to_string(layout.ep);
  if (layout.zero > 1) text += "·zero" + std::to_string(layout.zero);
  return text;
}

Rank rank_at(Layout layout, int index) {
  return {.tp = index % layout.tp,
          .pp = index / layout.tp % layout.pp,
          .zero = index / layout.tp / layout.pp};
}

const StagePlan* find(const Plan& plan, ModelStage model_stage) {
  const auto found =
      std::find_if(plan.stages.begin(), plan.stages.end(),
                   [&](const StagePlan& stage) { return stage.model_stage == model_stage; });
  return found == plan.stages.end() ? nullptr : &*found;
}

const StagePlan& at(const Plan& plan, ModelStage model_stage) {
  const StagePlan* stage = find(plan, model_stage);
  NEREUS_CHECK(stage != nullptr, "the plan has no " + to_string(model_stage));
  return *stage;
}

DevicePool devices_of(const Plan& plan) {
  std::vector<DeviceId> devices;
  for (const StagePlan& stage : plan.stages) {
    for (const auto& unit : stage.units) devices.insert(devices.end(), unit.begin(), unit.end());
  }
  return DevicePool(std::move(devices));
}

std::string to_string(const StagePlan& stage) {
  std::string text = to_string(stage.model_stage) + " " + to_string(stage.layout) + "·dp" +
                     std::to_string(stage.dp()) + " mb" + std::to_string(stage.micro_batch);
  if (stage.recompute) text += " recompute";
  if (stage.offload) text += " offload";
  if (stage.waves > 1) text += " waves" + std::to_string(stage.waves);
  text += " ";
  for (const auto& unit : stage.units) {
    std::vector<std::string> names;
    for (DeviceId device : unit) names.push_back(to_string(device));
    text.append("[").append(join(names, " ")).append("]");
  }
  return text;
}

std::string to_string(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) text += to_string(stage) + "\n";
  return text;
}

void to_json(Json& j, const StagePlan& stage) {
  j = {{"role", to_string(stage.model_stage.role)},
       {"stage", to_string(stage.model_stage.stage)},
       {"tp", stage.layout.tp},
       {"pp", stage.layout.pp},
       {"ep", stage.layout.ep},
       {"zero", stage.layout.zero},
       {"dp", stage.dp()},
       {"units", stage.units},
       {"micro_batch", stage.micro_batch},
       {"recompute", stage.recompute},
       {"offload", stage.offload},
       {"waves", stage.waves}};
}

void from_json(const Json& j, StagePlan& stage) {
  const std::string where = "plan stage";
  refuse_unknown_keys(j,
                      {"role", "stage", "tp", "pp", "ep", "zero", "dp", "units", "micro_batch",
                       "recompute", "offload", "waves"},
                      where);
  stage.model_stage.role = parse_role(require<std::string>(j, "role", where));
  stage.model_stage.stage = parse_stage(require<std::string>(j, "stage", where));
  const std::string name = "plan stage " + to_string(stage.model_stage);
  stage.layout.tp = require<int>(j, "tp", name);
  stage.layout.pp = require<int>(j, "pp", name);
  stage.layout.ep = optional(j, "ep", 1, name);
  stage.layout.zero = optional(j, "zero", 1, name);
  stage.units = require<std::vector<std::vector<DeviceId>>>(j, "units", name);
  stage.micro_batch = optional(j, "micro_batch", 1, name);
  stage.recompute = optional(j, "recompute", false, name);
  stage.offload = optional(j, "offload", false, name);
  stage.waves = optional(j, "waves", 1, name);
  // Before verify(), the product may be anything.
  const int64_t units = std::ssize(stage.units);
  const int64_t dp = optional(j, "dp", units * stage.layout.zero, name);
  if (dp != units * stage.layout.zero) {
    throw Error(ErrorCode::kInvalidInput, name + ": dp " + std::to_string(dp) + " but " +
                                              std::to_string(stage.units.size()) + " units of " +
                                              std::to_string(stage.layout.zero) +
                                              "; leave dp out or list dp / zero units");
  }
}

void to_json(Json& j, const Plan& plan) { j = Json{{"stages", plan.stages}}; }

void from_json(const Json& j, Plan& plan) {
  refuse_unknown_keys(j, {"stages"}, "plan");
  plan.stages = require<std::vector<StagePlan>>(j, "stages", "plan");
  // The order in a file carries no meaning; in a Plan it is fixed.
  std::stable_sort(
      plan.stages.begin(), plan.stages.end(),
      [](const StagePlan& a, const StagePlan& b) { return a.model_stage < b.model_stage; });
}

}  // namespace nereus
