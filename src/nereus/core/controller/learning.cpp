#include "nereus/core/controller/learning.h"

#include <algorithm>

#include "nereus/core/cost/memory.h"
#include "nereus/core/cost/step_latency.h"

namespace nereus {
namespace {

// The job with the workload that the step really had.
JobSpec executed(JobSpec job, const StepReport& report) {
  job.workload = report.workload;
  return job;
}

// Stages of a pipeline wait for each other, and a worker cannot tell waiting from receiving. So
// what local work and pipeline communication took together is divided as predicted.
ClassTimes without_waiting(ClassTimes measured, const ClassTimes& ideal,
                           const Calibration& calibration) {
  if (!ideal.contains(OpClass::kPipelineComm)) return measured;
  const OpClass local = ideal.contains(OpClass::kDecode) ? OpClass::kDecode : OpClass::kCompute;
  const auto predicted = [&](OpClass op_class) {
    const auto time = ideal.find(op_class);
    return time == ideal.end() ? 0 : time->second.count() / calibration.efficiency(op_class);
  };
  const double both = predicted(local) + predicted(OpClass::kPipelineComm);
  const Seconds total = measured[local] + measured[OpClass::kPipelineComm];
  for (OpClass op_class : {local, OpClass::kPipelineComm}) {
    measured[op_class] = total * (predicted(op_class) / both);
  }
  return measured;
}

// A worker that is done waits for the slowest one, and no clock of its own tells. Predictions are
// of the slowest one, so the means over the workers are stretched to what the node took.
ClassTimes until_the_end(ClassTimes measured, Seconds total) {
  Seconds sum;
  for (const auto& [op_class, time] : measured) sum += time;
  if (sum <= Seconds()) return measured;
  for (auto& [op_class, time] : measured) time = time * (total / sum);
  return measured;
}

void learn_memory(Calibration& calibration, const StepReport& report, const Plan& plan,
                  const JobSpec& job) {
  const MemoryPrediction predicted = predict_memory(plan, job, {});
  Bytes worst_predicted, worst_measured;
  for (const auto& [device, peak] : predicted.peak) {
    const auto measured_peak = report.peak_bytes.find(device);
    const auto measured_resident = report.resident_bytes.find(device);
    if (measured_peak == report.peak_bytes.end() ||
        measured_resident == report.resident_bytes.end()) {
      continue;
    }
    // More state than predicted must not hide in the difference of two measurements.
    const Bytes resident = std::min(predicted.resident.at(device), measured_resident->second);
    const Bytes measured = measured_peak->second - resident;
    const Bytes transient = peak - predicted.resident.at(device);
    if (transient <= Bytes()) continue;
    const bool worse =
        worst_predicted == Bytes() || measured / transient > worst_measured / worst_predicted;
    if (!worse) continue;
    worst_predicted = transient;
    worst_measured = measured;
  }
  calibration.observe_memory(worst_predicted, worst_measured);
}

}  // namespace

Calibration learned(Calibration calibration, const StepReport& report, const Plan& plan,
                    const JobSpec& job, const Cluster& cluster) {
  const JobSpec as_run = executed(job, report);
  ClassTimes ideal_sum, measured_sum;
  verify_spans(report.spans, job.workflow);
  for (const Span& span : report.spans) {
    if (span.idle) continue;
    const ClassTimes ideal = ideal_node_times(job.workflow.at(span.node), plan, as_run, cluster);
    const ClassTimes measured =
        without_waiting(until_the_end(span.by_class, span.took()), ideal, calibration);
    for (const auto& [op_class, time] : ideal) {
      const auto found = measured.find(op_class);
      if (found == measured.end()) continue;
      ideal_sum[op_class] += time;
      measured_sum[op_class] += found->second;
    }
  }
  for (const auto& [op_class, ideal] : ideal_sum) {
    calibration.observe(op_class, ideal, measured_sum.at(op_class));
  }
  learn_memory(calibration, report, plan, as_run);
  return calibration;
}

double step_efficiency(const StepReport& report, const Plan& plan, const JobSpec& job,
                       const Cluster& cluster) {
  const JobSpec as_run = executed(job, report);
  verify_spans(report.spans, job.workflow);
  Seconds ideal, measured;
  for (const Span& span : report.spans) {
    if (span.idle) continue;
    measured += span.took();
    for (const auto& [op_class, time] :
         ideal_node_times(job.workflow.at(span.node), plan, as_run, cluster)) {
      ideal += time;
    }
  }
  return ideal / measured;
}

Calibration learned(Calibration calibration, const TransitionDag& dag,
                    const TransitionReport& report) {
  for (const PrimitiveReport& measured : report.primitives) {
    const Primitive& p = dag.primitives.at(static_cast<size_t>(measured.id));
    const Seconds set_up = p.set_up * (1 / calibration.efficiency(OpClass::kSwitch));
    const Seconds transfer = p.transfer * (1 / calibration.efficiency(OpClass::kTransfer));
    if (set_up > transfer) {
      calibration.observe(OpClass::kSwitch, p.set_up, measured.measured - transfer);
    } else {
      calibration.observe(OpClass::kTransfer, p.transfer, measured.measured - set_up);
    }
  }
  calibration.observe_settling(report.settling);
  return calibration;
}

}  // namespace nereus
