// Predicted time of one RL step under a plan: per workflow node and operation class.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "nereus/core/cost/calibration.h"
#include "nereus/core/cost/operations.h"
#include "nereus/core/cost/site.h"
#include "nereus/core/state/emu.h"

namespace nereus {

// A predicted time with an interval that holds it nine times out of ten, if the calibration's
// deviations are true and classes err independently of each other.
struct TimeEstimate {
  Seconds expected;
  Seconds low;
  Seconds high;
};

struct NodeLatency {
  std::string name;  // the workflow node's
  ClassTimes ideal;  // by what a worker's clock tells apart
  Seconds predicted;
  TimeEstimate estimate;  // expected = predicted
  Work work;              // ideal, by operation too
};

struct StepLatency {
  // Critical path of the workflow with device sharing; of an asynchronous one, the interval between
  // weight synchronisations.
  Seconds total;
  TimeEstimate estimate;  // expected = total; low and high if all nodes are fast or slow together
  std::vector<NodeLatency> nodes;
  std::vector<OpClass> unseen;  // classes that default efficiencies stand for, sorted
};

// Nodes whose model-stages share a device run one after the other; nodes on disjoint devices
// overlap; total is the resulting critical path. The slowest replica of a node decides.
StepLatency predict_step(const Plan& plan, const JobSpec& job, const Cluster& cluster,
                         const Calibration& calibration);

// The ideal work of one node. Waiting for other pipeline stages (the bubble) counts as what those
// stages do, not as kPipelineComm.
Work ideal_node_work(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                     const Cluster& cluster);
// The same of a pass on the devices of its model-stage.
Work ideal_pass_work(const WorkflowNode& node, const StagePlan& stage, const Site& site,
                     const JobSpec& job, const Cluster& cluster);
// A node's times by what a worker's clock tells apart: exposed so that calibration compares like
// with like.
ClassTimes ideal_node_times(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                            const Cluster& cluster);

// Sum of ideal / efficiency. What a live job taught of a whole class comes first, then what a
// profile taught of its operations; the rest takes the class's default.
Seconds predicted_time(const Work& work, const Calibration& calibration);
Seconds predicted_time(const ClassTimes& ideal, const Calibration& calibration);
TimeEstimate estimated_time(const Work& work, const Calibration& calibration);

// When the last node ends, if each starts as soon as all that it waits for (waits_for()) has ended.
// `times` and `devices` have one entry per workflow node.
Seconds critical_path(const Workflow& workflow, std::span<const Seconds> times,
                      std::span<const std::vector<DeviceId>> devices);

}  // namespace nereus
