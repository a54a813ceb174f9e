// The algorithms that a job may choose: one row each. To add one, add its row here, its formula to
// rl's advantage estimators, and what its workflow needs besides to make_workflow().
#pragma once

#include <span>
#include <string>

#include "nereus/core/workflow/workflow.h"

namespace nereus {

// How advantages follow from scores; formulas with their sources are in rl/advantage.h.
enum class AdvantageEstimator {
  kGae,
  kGrpo,
  kRloo,
  kReinforcePlusPlus,
  kReinforcePlusPlusBaseline,
  kRemax
};

struct Algorithm {
  AdvantageEstimator estimator = AdvantageEstimator::kGae;
  const char* name = "";         // verl's algorithm.adv_estimator
  bool critic = false;           // trains a critic, whose values the estimator reads
  bool greedy_baseline = false;  // reads the score of the actor's greedy response to the prompt
};

std::span<const Algorithm> algorithms();
const Algorithm& algorithm(AdvantageEstimator estimator);
std::string to_string(AdvantageEstimator estimator);
// By verl's name. Throws Error(kInvalidInput) listing the legal ones.
AdvantageEstimator parse_advantage_estimator(const std::string& name);

// What a job chooses besides its algorithm.
struct WorkflowChoice {
  bool reference = false;     // log-probabilities under a reference model are needed
  bool reward_model = false;  // scores come from a model, not from a function on the host
  bool old_log_probs = true;  // computed by a pass of their own, not by the update's
};

// gen → {old_log_prob, ref, values, reward}, gen_max → reward_max (greedy baseline); all → adv →
// {update_critic, update_actor}, update_actor → update_weights (which runs on the actor's
// generation units) → the next step's gen; what an algorithm or a choice does without is left out.
// Weights reach the passes that use them in the next step.
Workflow make_workflow(const Algorithm& algorithm, const WorkflowChoice& choice);

// PPO's.
Workflow ppo_workflow(bool with_reference, bool with_reward_model = false);

}  // namespace nereus
