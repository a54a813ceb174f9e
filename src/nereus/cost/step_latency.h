// Predicted time of one RL step under a plan: per workflow node and operation class.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "nereus/cost/calibration.h"
#include "nereus/state/emu.h"

namespace nereus {

// Ideal seconds (at peak rates) by class; predicted = ideal / efficiency of the class.
using ClassTimes = std::map<OpClass, Seconds>;

struct NodeLatency {
  std::string name;  // the workflow node's
  ClassTimes ideal;
  Seconds predicted;
};

struct StepLatency {
  Seconds total;  // critical path of the workflow with device sharing
  std::vector<NodeLatency> nodes;
};

// Nodes whose model-stages share a device run one after the other; nodes on disjoint devices
// overlap; total is the resulting critical path. The slowest replica of a node decides.
StepLatency predict_step(const Plan& plan, const JobSpec& job, const Cluster& cluster,
                         const Calibration& calibration);

// The ideal class times of one node: exposed so that calibration compares like with like. Waiting
// for other pipeline stages (the bubble) counts as what those stages do, not as kPipelineComm.
ClassTimes ideal_node_times(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                            const Cluster& cluster);

// Sum of ideal / efficiency.
Seconds predicted_time(const ClassTimes& ideal, const Calibration& calibration);

// When the last node ends, if the nodes start in topological order, each as soon as its
// predecessors are done and its devices are free. `times` and `devices` have one entry per workflow
// node.
Seconds critical_path(const Workflow& workflow, std::span<const Seconds> times,
                      std::span<const std::vector<DeviceId>> devices);

}  // namespace nereus
