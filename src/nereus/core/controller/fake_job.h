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
  Seconds start;
  for (const NodeId id : node_ids(job.workflow)) {
    const NodeLatency& node = latency.nodes[index(id)];
    Span span{.step = step,
              .node = id,
              .name = node.name,
              .start = start,
              .end = start + node.predicted,
              .devices = busy_devices(job.workflow.at(id), plan)};
    for (const auto& [op_class, ideal] : node.ideal) {
      span.by_class[op_class] = ideal * (1 / truth.efficiency(op_class));
    }
    start = span.end;
    report.spans.push_back(std::move(span));
  }
  report.step_s = latency.total;
  const MemoryPrediction memory = predict_memory(plan, job, truth);
  report.peak_bytes = memory.peak;
  report.resident_bytes = memory.resident;
  return report;
}

}  // namespace nereus
