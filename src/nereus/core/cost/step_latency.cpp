#include "nereus/core/cost/step_latency.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace nereus {
namespace {

constexpr double kNineOfTen = 1.645;  // standard deviations to both sides

// Calls visit(op_class, predicted seconds) for each part of the work whose efficiency counts: whole
// classes that a live job taught or no profile knows, else operations.
void for_each_part(const Work& work, const Calibration& calibration, const auto& visit) {
  for (const auto& [whole, operations] : work) {
    double rest = 0;
    for (OpClass operation : kAllOpClasses) {
      const double ideal = operations[operation];
      if (ideal <= 0) continue;
      const bool by_operation = !calibration.seen(whole) && calibration.seen(operation);
      if (by_operation) {
        visit(operation, ideal / calibration.efficiency(operation));
      } else {
        rest += ideal;
      }
    }
    if (rest > 0) visit(whole, rest / calibration.efficiency(whole));
  }
}

}  // namespace

ClassTimes class_times(const Work& work) {
  ClassTimes times;
  for (const auto& [whole, operations] : work) {
    const double sum = operations.sum();
    if (sum > 0) times[whole] = Seconds(sum);
  }
  return times;
}

Seconds predicted_time(const Work& work, const Calibration& calibration) {
  Seconds total;
  for_each_part(work, calibration, [&](OpClass, double time) { total += Seconds(time); });
  return total;
}

Seconds predicted_time(const ClassTimes& ideal, const Calibration& calibration) {
  Seconds total;
  for (const auto& [op_class, time] : ideal) {
    total += time * (1 / calibration.efficiency(op_class));
  }
  return total;
}

TimeEstimate estimated_time(const Work& work, const Calibration& calibration) {
  std::map<OpClass, double> by_class;
  double total = 0;
  for_each_part(work, calibration, [&](OpClass op_class, double time) {
    by_class[op_class] += time;
    total += time;
  });
  if (total == 0) return {};
  double variance = 0;
  for (const auto& [op_class, time] : by_class) {
    variance += std::pow(time / total * calibration.log_deviation(op_class), 2);
  }
  const double factor = std::exp(kNineOfTen * std::sqrt(variance));
  return {Seconds(total), Seconds(total / factor), Seconds(total * factor)};
}

Seconds critical_path(const Workflow& workflow, std::span<const Seconds> times,
                      std::span<const std::vector<DeviceId>> devices) {
  const std::vector<std::vector<NodeId>> before = waits_for(workflow, devices);
  std::vector<Seconds> ends(workflow.nodes.size());
  Seconds last;
  for (const NodeId node : topological_order(workflow)) {
    Seconds start;
    for (const NodeId other : before[index(node)]) start = std::max(start, ends[index(other)]);
    ends[index(node)] = start + times[index(node)];
    last = std::max(last, ends[index(node)]);
  }
  return last;
}

StepLatency predict_step(const Plan& plan, const JobSpec& job, const Cluster& cluster,
                         const Calibration& calibration) {
  StepLatency latency;
  std::vector<std::vector<DeviceId>> devices;
  std::set<OpClass> unseen;
  for (const WorkflowNode& node : job.workflow.nodes) {
    Work work = ideal_node_work(node, plan, job, cluster);
    const TimeEstimate estimate = estimated_time(work, calibration);
    for_each_part(work, calibration, [&](OpClass op_class, double) {
      if (!calibration.seen(op_class)) unseen.insert(op_class);
    });
    devices.push_back(busy_devices(node, plan));
    latency.nodes.push_back({.name = node.name,
                             .ideal = class_times(work),
                             .predicted = estimate.expected,
                             .estimate = estimate,
                             .work = std::move(work)});
  }
  const Workflow graph = between_syncs(job.workflow);
  const auto path = [&](Seconds TimeEstimate::* which) {
    std::vector<Seconds> times;
    for (const NodeLatency& node : latency.nodes) times.push_back(node.estimate.*which);
    return critical_path(graph, times, devices);
  };
  latency.estimate = {path(&TimeEstimate::expected), path(&TimeEstimate::low),
                      path(&TimeEstimate::high)};
  latency.total = latency.estimate.expected;
  latency.unseen.assign(unseen.begin(), unseen.end());
  return latency;
}

}  // namespace nereus
