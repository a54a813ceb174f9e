#include "nereus/core/workflow/workflow.h"

#include <algorithm>
#include <map>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidInput, "the workflow cannot be executed: " + message);
}

void verify_edges(const Workflow& workflow) {
  const auto is_there = [&](NodeId node) {
    return static_cast<int>(node) >= 0 && index(node) < workflow.nodes.size();
  };
  for (const WorkflowEdge& edge : workflow.edges) {
    if (!is_there(edge.from) || !is_there(edge.to)) {
      refuse("an edge from node " + std::to_string(static_cast<int>(edge.from)) + " to node " +
             std::to_string(static_cast<int>(edge.to)) + " of " +
             std::to_string(workflow.nodes.size()));
    }
    if (edge.lag < 0) {
      refuse(workflow.at(edge.from).name + " → " + workflow.at(edge.to).name + " has the lag " +
             std::to_string(edge.lag) + "; it must be 0 (the same step) or more");
    }
  }
}

// Which stage's units a pass runs on; training units also serve the passes of a trained model.
bool suits(Pass pass, Stage stage) {
  switch (pass) {
    case Pass::kGenerate:
    case Pass::kSyncWeights:
      return stage == Stage::kGeneration;
    case Pass::kTrain:
      return stage == Stage::kTraining;
    case Pass::kScores:
      return stage == Stage::kInference;
    case Pass::kLogProbs:
    case Pass::kValues:
      return stage != Stage::kGeneration;
    case Pass::kReward:
    case Pass::kAdvantage:
      break;
  }
  return true;
}

bool is_sync_to_generation(const Workflow& workflow, const WorkflowEdge& edge) {
  return workflow.at(edge.from).pass == Pass::kSyncWeights &&
         workflow.at(edge.to).pass == Pass::kGenerate;
}

// For each node the fields that nodes before it in the step write.
std::vector<std::set<Field>> fields_before(const Workflow& workflow) {
  const std::vector<std::vector<NodeId>> before = predecessors(workflow);
  std::vector<std::set<Field>> fields(workflow.nodes.size());
  for (const NodeId node : topological_order(workflow)) {
    for (const NodeId from : before[index(node)]) {
      fields[index(node)].insert(fields[index(from)].begin(), fields[index(from)].end());
      fields[index(node)].insert(workflow.at(from).writes.begin(), workflow.at(from).writes.end());
    }
  }
  return fields;
}

}  // namespace

bool runs_on_devices(Pass pass) { return pass != Pass::kReward && pass != Pass::kAdvantage; }

std::string to_string(Field field) {
  switch (field) {
    case Field::kResponses:
      return "responses";
    case Field::kBaselines:
      return "baselines";
    case Field::kOldLogProbs:
      return "old_log_probs";
    case Field::kRefLogProbs:
      return "ref_log_probs";
    case Field::kValues:
      return "values";
    case Field::kScores:
      return "scores";
    case Field::kBaselineScores:
      return "baseline_scores";
    case Field::kAdvantages:
      return "advantages";
  }
  return "unknown";
}

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

bool is_of_baselines(const WorkflowNode& node) {
  return node.writes.contains(Field::kBaselines) || node.reads.contains(Field::kBaselines);
}

std::vector<NodeId> node_ids(const Workflow& workflow) {
  std::vector<NodeId> ids;
  for (size_t i = 0; i < workflow.nodes.size(); ++i) ids.push_back(static_cast<NodeId>(i));
  return ids;
}

void verify(const Workflow& workflow) {
  verify_edges(workflow);
  const std::vector<std::set<Field>> written = fields_before(workflow);
  std::map<Field, std::string> writer;
  for (const NodeId id : node_ids(workflow)) {
    const WorkflowNode& node = workflow.at(id);
    if (!suits(node.pass, node.runs_on.stage)) {
      refuse(node.name + " (" + to_string(node.pass) + ") runs on " + to_string(node.runs_on) +
             ", whose units cannot do it");
    }
    for (const Field field : node.reads) {
      if (written[index(id)].contains(field)) continue;
      refuse(node.name + " reads " + to_string(field) + ", which no node before it writes");
    }
    for (const Field field : node.writes) {
      const auto [other, is_first] = writer.emplace(field, node.name);
      if (is_first) continue;
      refuse(other->second + " and " + node.name + " both write " + to_string(field));
    }
  }
}

std::vector<ModelStage> model_stages(const Workflow& workflow) {
  std::set<ModelStage> stages;
  for (const WorkflowNode& node : workflow.nodes) {
    if (runs_on_devices(node.pass)) stages.insert(node.runs_on);
  }
  return {stages.begin(), stages.end()};
}

std::vector<ModelStage> trained_stages(const Workflow& workflow) {
  std::vector<ModelStage> stages = model_stages(workflow);
  std::erase_if(stages, [](ModelStage it) { return it.stage != Stage::kTraining; });
  return stages;
}

std::vector<ModelStage> busy_stages(const WorkflowNode& node) {
  if (!runs_on_devices(node.pass)) return {};
  if (node.pass == Pass::kSyncWeights) return {kActorTraining, node.runs_on};
  return {node.runs_on};
}

std::vector<DeviceId> busy_devices(const WorkflowNode& node, const Plan& plan) {
  std::set<DeviceId> devices;
  for (const ModelStage model_stage : busy_stages(node)) {
    for (const std::vector<DeviceId>& unit : at(plan, model_stage).units) {
      devices.insert(unit.begin(), unit.end());
    }
  }
  return {devices.begin(), devices.end()};
}

Workflow one_step_off_policy(Workflow workflow) {
  for (WorkflowEdge& edge : workflow.edges) {
    if (is_sync_to_generation(workflow, edge)) edge.lag = 2;
  }
  return workflow;
}

bool is_asynchronous(const Workflow& workflow) {
  return std::ranges::any_of(workflow.edges, [&](const WorkflowEdge& edge) {
    return edge.lag > 1 && is_sync_to_generation(workflow, edge);
  });
}

Workflow between_syncs(Workflow workflow) {
  const bool generates_beside = is_asynchronous(workflow);
  std::erase_if(workflow.edges, [](const WorkflowEdge& edge) { return edge.lag > 0; });
  if (!generates_beside) return workflow;
  std::erase_if(workflow.edges, [&](const WorkflowEdge& edge) {
    return workflow.at(edge.from).pass == Pass::kGenerate;
  });
  for (const NodeId from : node_ids(workflow)) {
    for (const NodeId to : node_ids(workflow)) {
      if (workflow.at(from).pass == Pass::kGenerate && workflow.at(to).pass == Pass::kSyncWeights) {
        workflow.edges.push_back({from, to});
      }
    }
  }
  return workflow;
}

std::vector<NodeId> topological_order(const Workflow& workflow) {
  std::vector<int> waiting_for(workflow.nodes.size(), 0);
  for (const WorkflowEdge& edge : workflow.edges) {
    if (edge.lag == 0) ++waiting_for[index(edge.to)];
  }
  std::set<NodeId> ready;
  for (const NodeId node : node_ids(workflow)) {
    if (waiting_for[index(node)] == 0) ready.insert(node);
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId node = ready.extract(ready.begin()).value();
    order.push_back(node);
    for (const WorkflowEdge& edge : workflow.edges) {
      if (edge.from != node || edge.lag > 0) continue;
      if (--waiting_for[index(edge.to)] == 0) ready.insert(edge.to);
    }
  }
  for (const NodeId node : node_ids(workflow)) {
    if (waiting_for[index(node)] > 0) {
      refuse(workflow.at(node).name + " waits for itself: a cycle needs an edge with a lag");
    }
  }
  return order;
}

std::vector<std::vector<NodeId>> predecessors(const Workflow& workflow) {
  std::vector<std::vector<NodeId>> before(workflow.nodes.size());
  for (const WorkflowEdge& edge : workflow.edges) {
    if (edge.lag == 0) before[index(edge.to)].push_back(edge.from);
  }
  return before;
}

std::vector<std::vector<NodeId>> waits_for(const Workflow& workflow,
                                           std::span<const std::vector<DeviceId>> devices) {
  std::vector<std::vector<NodeId>> before = predecessors(workflow);
  std::map<DeviceId, NodeId> last_on;
  for (const NodeId node : topological_order(workflow)) {
    for (const DeviceId device : devices[index(node)]) {
      const auto [last, is_first] = last_on.emplace(device, node);
      if (is_first) continue;
      if (std::ranges::find(before[index(node)], last->second) == before[index(node)].end()) {
        before[index(node)].push_back(last->second);
      }
      last->second = node;
    }
  }
  return before;
}

void to_json(Json& j, const Workflow& workflow) {
  const auto names_of = [](const std::set<Field>& fields) {
    Json names = Json::array();
    for (const Field field : fields) names.push_back(to_string(field));
    return names;
  };
  Json nodes = Json::array(), edges = Json::array();
  for (const WorkflowNode& node : workflow.nodes) {
    Json entry = {{"name", node.name},
                  {"pass", to_string(node.pass)},
                  {"reads", names_of(node.reads)},
                  {"writes", names_of(node.writes)}};
    if (runs_on_devices(node.pass)) {
      entry["role"] = to_string(node.runs_on.role);
      entry["stage"] = to_string(node.runs_on.stage);
    }
    nodes.push_back(std::move(entry));
  }
  for (const WorkflowEdge& edge : workflow.edges) {
    Json entry = {{"from", workflow.at(edge.from).name}, {"to", workflow.at(edge.to).name}};
    if (edge.lag > 0) entry["lag"] = edge.lag;
    edges.push_back(std::move(entry));
  }
  j = {{"algorithm", workflow.algorithm}, {"nodes", nodes}, {"edges", edges}};
}

}  // namespace nereus
