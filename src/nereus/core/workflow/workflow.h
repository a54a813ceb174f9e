// One RL step as a graph of passes over model-stages and the data that flows between them. Cost
// model, planner, controller and the live executor read the same graph.
#pragma once

#include <set>
#include <span>
#include <string>
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
// True for passes over a model-stage, false for work of the host.
bool runs_on_devices(Pass pass);

// What the samples of a step gain as it goes on. Prompts are there from the beginning.
enum class Field {
  kResponses,       // with the log-probabilities under which they were drawn
  kBaselines,       // the actor's greedy response to each prompt
  kOldLogProbs,     // under the actor as it is before its updates
  kRefLogProbs,     // under the reference
  kValues,          // the critic's
  kScores,          // of the responses
  kBaselineScores,  // of the greedy responses
  kAdvantages,      // with rewards and returns
};
std::string to_string(Field field);  // "responses", "old_log_probs", …

// A node's place in Workflow::nodes. Rooms that speak of the same node say its id; names are for
// people only.
enum class NodeId : int {};
constexpr size_t index(NodeId node) { return static_cast<size_t>(node); }

struct WorkflowNode {
  std::string name;  // verl's timing name: gen, old_log_prob, ref, values, reward, adv, …
  Pass pass = Pass::kTrain;
  ModelStage runs_on;  // meaningless for kReward and kAdvantage, which run on the host
  std::set<Field> reads;
  std::set<Field> writes;
  bool operator==(const WorkflowNode&) const = default;
};

// `to` starts when `from` has ended: in the same step, or, with a lag, `lag` steps before.
struct WorkflowEdge {
  NodeId from{};
  NodeId to{};
  int lag = 0;
  bool operator==(const WorkflowEdge&) const = default;
};

struct Workflow {
  std::string algorithm;  // verl's adv_estimator: "gae" (PPO), "grpo", …
  std::vector<WorkflowNode> nodes;
  std::vector<WorkflowEdge> edges;

  const WorkflowNode& at(NodeId node) const { return nodes.at(index(node)); }
  bool operator==(const Workflow&) const = default;
};

// True for a node that works on the greedy responses, one to each prompt, and not on the samples.
bool is_of_baselines(const WorkflowNode& node);

// All nodes' ids, ascending.
std::vector<NodeId> node_ids(const Workflow& workflow);

// Throws Error(kInvalidInput) naming node and field or model-stage for: an edge to or from no node,
// a negative lag, a cycle without lag, a field that is read and that no node before it in the step
// writes, one that two nodes write, and a pass on a model-stage of another kind (generation on
// training units, say).
void verify(const Workflow& workflow);

// The model-stages that hold state: what a plan must place. Sorted.
std::vector<ModelStage> model_stages(const Workflow& workflow);
// Those with an optimizer: what a checkpoint is made of. Sorted.
std::vector<ModelStage> trained_stages(const Workflow& workflow);
// The model-stages whose devices a node keeps busy: none for host work, two for a weight
// synchronisation.
std::vector<ModelStage> busy_stages(const WorkflowNode& node);
// The devices of these under `plan`, each once, sorted; plan's stages must have them.
std::vector<DeviceId> busy_devices(const WorkflowNode& node, const Plan& plan);

// One step off-policy: generation goes on with weights that are one synchronisation older, so that
// the next batch is generated while this one is trained on. The lag of the edge from
// synchronisation to generation says so (synchronous: 1, s steps off-policy: s + 1).
Workflow one_step_off_policy(Workflow workflow);
bool is_asynchronous(const Workflow& workflow);
// What runs between two weight synchronisations, as a graph without cycles: the workflow itself
// without the edges to later steps if it is synchronous. Else nothing waits for generation but the
// synchronisation.
Workflow between_syncs(Workflow workflow);

// The nodes in an order that respects the edges without lag (stable). Throws Error(kInvalidInput)
// naming a node on a cycle.
std::vector<NodeId> topological_order(const Workflow& workflow);
// For each node those from which an edge without lag leads to it.
std::vector<std::vector<NodeId>> predecessors(const Workflow& workflow);
// How a step is executed and predicted: for each node all that it waits for, its predecessors and
// whatever comes before it in topological order and shares a device with it. So every device does
// its nodes in topological order, and nodes without a device in common run at once. `devices` has
// one entry per node.
std::vector<std::vector<NodeId>> waits_for(const Workflow& workflow,
                                           std::span<const std::vector<DeviceId>> devices);

// {"algorithm", "nodes": [{"name", "pass", "role", "stage", "reads", "writes"}], "edges": [{"from",
// "to", "lag" if not 0}]} by name.
void to_json(Json& j, const Workflow& workflow);

}  // namespace nereus
