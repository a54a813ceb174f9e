#include "nereus/cost/step_latency.h"

#include <algorithm>

namespace nereus {
namespace {

// The devices that a node keeps busy; none for host work.
std::vector<DeviceId> busy_devices(const WorkflowNode& node, const Plan& plan) {
  std::vector<DeviceId> devices;
  const auto append = [&](ModelStage model_stage) {
    for (const std::vector<DeviceId>& unit : at(plan, model_stage).units) {
      devices.insert(devices.end(), unit.begin(), unit.end());
    }
  };
  switch (node.pass) {
    case Pass::kReward:
    case Pass::kAdvantage:
      break;
    case Pass::kSyncWeights:
      append({Role::kActor, Stage::kTraining});
      append({Role::kActor, Stage::kGeneration});
      break;
    case Pass::kGenerate:
    case Pass::kLogProbs:
    case Pass::kValues:
    case Pass::kTrain:
      append(node.runs_on);
  }
  return devices;
}

}  // namespace

Seconds predicted_time(const ClassTimes& ideal, const Calibration& calibration) {
  Seconds total;
  for (const auto& [op_class, time] : ideal) {
    total += time * (1 / calibration.efficiency(op_class));
  }
  return total;
}

Seconds critical_path(const Workflow& workflow, std::span<const Seconds> times,
                      std::span<const std::vector<DeviceId>> devices) {
  std::vector<Seconds> ends(workflow.nodes.size());
  std::map<DeviceId, Seconds> free_from;
  Seconds last;
  for (int node : topological_order(workflow)) {
    Seconds start;
    for (const auto& [from, to] : workflow.edges) {
      if (to == node) start = std::max(start, ends[from]);
    }
    for (DeviceId device : devices[node]) start = std::max(start, free_from[device]);
    ends[node] = start + times[node];
    for (DeviceId device : devices[node]) free_from[device] = ends[node];
    last = std::max(last, ends[node]);
  }
  return last;
}

StepLatency predict_step(const Plan& plan, const JobSpec& job, const Cluster& cluster,
                         const Calibration& calibration) {
  StepLatency latency;
  std::vector<Seconds> times;
  std::vector<std::vector<DeviceId>> devices;
  for (const WorkflowNode& node : job.workflow.nodes) {
    ClassTimes ideal = ideal_node_times(node, plan, job, cluster);
    times.push_back(predicted_time(ideal, calibration));
    devices.push_back(busy_devices(node, plan));
    latency.nodes.push_back({node.name, std::move(ideal), times.back()});
  }
  latency.total = critical_path(job.workflow, times, devices);
  return latency;
}

}  // namespace nereus
