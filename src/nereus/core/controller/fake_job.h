// Reports of steps that were never run: a machine with known efficiencies, for the controller's
// tests.
#pragma once

#include "nereus/core/controller/controller.h"

namespace nereus {

// True efficiencies of the machine that reports pretend to come from.
inline Calibration machine(double efficiency, double memory = 1) {
  Calibration truth;
  for (OpClass op_class : kAllOpClasses) {
    truth.observe(op_class, Seconds(efficiency), Seconds(1));
  }
  truth.observe_memory(Bytes(1000), Bytes(1000) * memory);
  return truth;
}

// The report of step `step` under `plan` with the workload of `job`; the next step is equal.
inline StepReport report_of(int step, const Plan& plan, const JobSpec& job, const Cluster& cluster,
                            const DevicePool& next_pool, const Calibration& truth) {
  StepReport report{.step = step,
                    .workload = job.workload,
                    .next_workload = job.workload,
                    .next_pool = next_pool};
  const StepLatency latency = predict_step(plan, job, cluster, truth);
  for (const NodeLatency& node : latency.nodes) {
    NodeTiming timing{.name = node.name, .total = node.predicted};
    for (const auto& [op_class, ideal] : node.ideal) {
      timing.by_class[op_class] = ideal * (1 / truth.efficiency(op_class));
    }
    report.nodes.push_back(std::move(timing));
  }
  report.step_s = latency.total;
  const MemoryPrediction memory = predict_memory(plan, job, truth);
  report.peak_bytes = memory.peak;
  report.resident_bytes = memory.resident;
  return report;
}

}  // namespace nereus
