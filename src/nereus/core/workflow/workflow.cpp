#include "nereus/core/workflow/workflow.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace nereus {

namespace {

bool holds_state(Pass pass) { return pass != Pass::kReward && pass != Pass::kAdvantage; }

Workflow actor_workflow(const char* algorithm, bool with_critic, bool with_reference,
                        bool with_reward_model) {
  constexpr ModelStage kGenerator{Role::kActor, Stage::kGeneration};
  constexpr ModelStage kActor{Role::kActor, Stage::kTraining};
  constexpr ModelStage kCritic{Role::kCritic, Stage::kTraining};
  constexpr ModelStage kReference{Role::kReference, Stage::kInference};
  constexpr ModelStage kRewardModel{Role::kReward, Stage::kInference};
  Workflow workflow{.algorithm = algorithm};
  const auto add = [&](const char* name, Pass pass, ModelStage runs_on,
                       const std::vector<int>& after) {
    const int node = static_cast<int>(workflow.nodes.size());
    workflow.nodes.push_back({name, pass, runs_on});
    for (int before : after) workflow.edges.emplace_back(before, node);
    return node;
  };
  const int gen = add("gen", Pass::kGenerate, kGenerator, {});
  std::vector<int> experience = {add("old_log_prob", Pass::kLogProbs, kActor, {gen})};
  if (with_reference) experience.push_back(add("ref", Pass::kLogProbs, kReference, {gen}));
  if (with_critic) experience.push_back(add("values", Pass::kValues, kCritic, {gen}));
  experience.push_back(with_reward_model ? add("reward", Pass::kScores, kRewardModel, {gen})
                                         : add("reward", Pass::kReward, {}, {gen}));
  const int adv = add("adv", Pass::kAdvantage, {}, experience);
  if (with_critic) add("update_critic", Pass::kTrain, kCritic, {adv});
  const int update_actor = add("update_actor", Pass::kTrain, kActor, {adv});
  add("update_weights", Pass::kSyncWeights, kGenerator, {update_actor});
  return workflow;
}

}  // namespace

std::string to_string(Pass pass) {
  switch (pass) {
    case Pass::kGenerate:
      return "generate";
    case Pass::kLogProbs:
      return "log_probs";
    case Pass::kValues:
      return "values";
    case Pass::kReward:
      return "reward";
    case Pass::kScores:
      return "scores";
    case Pass::kAdvantage:
      return "advantage";
    case Pass::kTrain:
      return "train";
    case Pass::kSyncWeights:
      return "sync_weights";
  }
  return "unknown";
}

Workflow ppo_workflow(bool with_reference, bool with_reward_model) {
  return actor_workflow("gae", /*with_critic=*/true, with_reference, with_reward_model);
}

Workflow grpo_workflow(bool with_reference, bool with_reward_model) {
  return actor_workflow("grpo", /*with_critic=*/false, with_reference, with_reward_model);
}

std::vector<ModelStage> model_stages(const Workflow& workflow) {
  std::set<ModelStage> stages;
  for (const WorkflowNode& node : workflow.nodes) {
    if (holds_state(node.pass)) stages.insert(node.runs_on);
  }
  return {stages.begin(), stages.end()};
}

std::vector<ModelStage> trained_stages(const Workflow& workflow) {
  std::vector<ModelStage> stages = model_stages(workflow);
  std::erase_if(stages, [](ModelStage it) { return it.stage != Stage::kTraining; });
  return stages;
}

Workflow between_syncs(Workflow workflow) {
  if (!workflow.asynchronous) return workflow;
  const auto is = [&](int node, Pass pass) {
    return workflow.nodes.at(static_cast<size_t>(node)).pass == pass;
  };
  std::erase_if(workflow.edges, [&](const auto& edge) { return is(edge.first, Pass::kGenerate); });
  const int count = static_cast<int>(workflow.nodes.size());
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (is(from, Pass::kGenerate) && is(to, Pass::kSyncWeights)) {
        workflow.edges.emplace_back(from, to);
      }
    }
  }
  return workflow;
}

std::vector<int> topological_order(const Workflow& workflow) {
  std::vector<int> waiting_for(workflow.nodes.size(), 0);
  for (const auto& [from, to] : workflow.edges) ++waiting_for[static_cast<size_t>(to)];
  std::set<int> ready;
  for (size_t node = 0; node < waiting_for.size(); ++node) {
    if (waiting_for[node] == 0) ready.insert(static_cast<int>(node));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int node = ready.extract(ready.begin()).value();
    order.push_back(node);
    for (const auto& [from, to] : workflow.edges) {
      if (from == node && --waiting_for[static_cast<size_t>(to)] == 0) ready.insert(to);
    }
  }
  NEREUS_CHECK(order.size() == workflow.nodes.size(), "the workflow has a cycle");
  return order;
}

void to_json(Json& j, const Workflow& workflow) {
  Json nodes = Json::array(), edges = Json::array();
  for (const WorkflowNode& node : workflow.nodes) {
    Json entry = {{"name", node.name}, {"pass", to_string(node.pass)}};
    if (holds_state(node.pass)) {
      entry["role"] = to_string(node.runs_on.role);
      entry["stage"] = to_string(node.runs_on.stage);
    }
    nodes.push_back(std::move(entry));
  }
  for (const auto& [from, to] : workflow.edges) {
    edges.push_back({{"from", workflow.nodes.at(static_cast<size_t>(from)).name},
                     {"to", workflow.nodes.at(static_cast<size_t>(to)).name}});
  }
  j = {{"algorithm", workflow.algorithm},
       {"asynchronous", workflow.asynchronous},
       {"nodes", nodes},
       {"edges", edges}};
}

}  // namespace nereus
