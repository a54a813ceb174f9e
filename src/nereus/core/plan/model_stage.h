// Which model, in which stage of the RL step.
#pragma once

#include <compare>
#include <string>

#include "nereus/core/base/json.h"

namespace nereus {

enum class Role { kActor, kCritic, kReference, kReward };
enum class Stage { kGeneration, kInference, kTraining };

struct ModelStage {
  Role role = Role::kActor;
  Stage stage = Stage::kTraining;
  auto operator<=>(const ModelStage&) const = default;
};

std::string to_string(Role role);               // "actor", "critic", "reference", "reward"
std::string to_string(Stage stage);             // "generation", "inference", "training"
std::string to_string(ModelStage model_stage);  // "actor/training"
// These throw Error(kInvalidInput) listing the legal words.
Role parse_role(const std::string& text);
Stage parse_stage(const std::string& text);

}  // namespace nereus
