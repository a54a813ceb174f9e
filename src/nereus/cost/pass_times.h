// Ideal times of the passes of one unit, on its own devices. Formulas: COST.md of the design notes.
#pragma once

#include <span>
#include <vector>

#include "nereus/cost/shape.h"
#include "nereus/cost/step_latency.h"

namespace nereus {

// One unit at work: what it runs and at which rates.
struct UnitView {
  const StagePlan* stage = nullptr;
  std::span<const DeviceId> devices;  // of the unit, in rank order
  const ModelUse* model = nullptr;
  const Workload* workload = nullptr;
  const Cluster* cluster = nullptr;
  double share = 1;  // of peak speed: devices that share cores slow each other down
};

// What a pass does with each block.
struct PassShape {
  double forwards = 1;  // work in units of one forward pass: 3 with backward, 4 with recomputation
  int all_reduces = 2;  // per block and micro-batch
  int sends = 1;        // over each pipeline boundary and micro-batch
};
inline constexpr PassShape kForwardPass = {1, 2, 1};
inline constexpr PassShape kTrainingPass = {3, 4, 2};
inline constexpr PassShape kRecomputePass = {4, 6, 2};

// All micro-batches through the pipeline: Σ t_p + (count - 1) · max t_p over the stages p,
// separately for kCompute, kTensorComm and kPipelineComm.
ClassTimes pipeline_times(const UnitView& unit, MicroBatches batches, PassShape shape);

// Prefill and response_mean decode steps of the unit's share of the samples.
ClassTimes generation_times(const UnitView& unit);

// One AdamW step over the unit's fullest rank.
Seconds optimizer_time(const UnitView& unit);

}  // namespace nereus
