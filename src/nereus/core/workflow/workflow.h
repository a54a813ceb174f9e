// One RL step as a graph of passes over model-stages and the data that flows between them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nereus/core/plan/plan.h"

namespace nereus {

// What a node computes. Inference passes of a trained model (old log-probabilities, values) run on
// its training units, as verl does: `runs_on` names whose state is used. Samples are scored by a
// function on the host (kReward) or by a reward model (kScores).
enum class Pass {
  kGenerate,
  kLogProbs,
  kValues,
  kReward,
  kScores,
  kAdvantage,
  kTrain,
  kSyncWeights
};
std::string to_string(Pass pass);  // "generate", "log_probs", …

struct WorkflowNode {
  std::string name;  // verl's timing name: gen, old_log_prob, ref, values, reward, adv, …
  Pass pass = Pass::kTrain;
  ModelStage runs_on;  // meaningless for kReward and kAdvantage, which run on the host
  bool operator==(const WorkflowNode&) const = default;
};

struct Workflow {
  std::string algorithm;  // verl's adv_estimator: "gae" (PPO), "grpo"
  std::vector<WorkflowNode> nodes;
  std::vector<std::pair<int, int>> edges;  // from → to, indices into nodes
  // One step off-policy: the next batch is generated while this one is trained on, and both are
  // waited for when weights are synchronised.
  bool asynchronous = false;
  bool operator==(const Workflow&) const = default;
};

// gen → {old_log_prob, ref, values, reward} → adv → {update_critic, update_actor}, and
// update_actor → update_weights (which runs on the actor's generation units). `reward` is a pass of
// the reward model if there is one.
Workflow ppo_workflow(bool with_reference, bool with_reward_model = false);
// The same without a critic: advantages are relative to the other responses to a prompt.
Workflow grpo_workflow(bool with_reference, bool with_reward_model = false);

// The model-stages that hold state: what a plan must place. Sorted.
std::vector<ModelStage> model_stages(const Workflow& workflow);
// Those with an optimizer: what a checkpoint is made of. Sorted.
std::vector<ModelStage> trained_stages(const Workflow& workflow);
// What runs between two weight synchronisations, as a graph without cycles: the workflow itself if
// it is synchronous. Else nothing waits for generation but the synchronisation.
Workflow between_syncs(Workflow workflow);

// The nodes in an order that respects the edges (stable). Throws Error(kInternal) on a cycle.
std::vector<int> topological_order(const Workflow& workflow);

// {"algorithm", "asynchronous", "nodes": [{"name", "pass", "role", "stage"}], "edges": [{"from",
// "to"}]} by name.
void to_json(Json& j, const Workflow& workflow);

}  // namespace nereus
