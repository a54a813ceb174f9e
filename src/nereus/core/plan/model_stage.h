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

inline constexpr ModelStage kActorGeneration{Role::kActor, Stage::kGeneration};
inline constexpr ModelStage kActorTraining{Role::kActor, Stage::kTraining};
inline constexpr ModelStage kCriticTraining{Role::kCritic, Stage::kTraining};
inline constexpr ModelStage kReferenceInference{Role::kReference, Stage::kInference};
inline constexpr ModelStage kRewardInference{Role::kReward, Stage::kInference};

std::string to_string(Role role);               // "actor", "critic", "reference", "reward"
std::string to_string(Stage stage);             // "generation", "inference", "training"
std::string to_string(ModelStage model_stage);  // "actor/training"
// These throw Error(kInvalidInput) listing the legal words.
Role parse_role(const std::string& text);
Stage parse_stage(const std::string& text);

}  // namespace nereus
