// Ideal times of the passes of one unit, on its own devices. Formulas: COST.md of the design notes.
#pragma once

#include "nereus/core/cost/unit_rates.h"

namespace nereus {

// What a pass does with each block.
struct PassShape {
  double forwards = 1;  // work in units of one forward pass: 3 with backward, 4 with recomputation
  int all_reduces = 2;  // per block and micro-batch
  int sends = 1;        // over each pipeline boundary and micro-batch
  bool skips_unread = false;  // one of the forwards leaves out what no backward reads
};
inline constexpr PassShape kForwardPass = {1, 2, 1};
inline constexpr PassShape kTrainingPass = {3, 4, 2};
inline constexpr PassShape kRecomputePass = {4, 6, 2};
inline constexpr PassShape kShortRecomputePass = {4, 5, 2, true};

// `sequences` of `length` tokens each; `outputs` of these go through the head.
struct Batch {
  double sequences = 0;
  double length = 0;
  double outputs = 0;
};
// What a TP rank of pipeline stage `pp_rank` computes in one forward pass.
Operations forward_pass(const UnitView& unit, int pp_rank, const Batch& batch);

// All micro-batches through the pipeline: Σ t_p + (count - 1) · max t_p over the stages p,
// separately for kCompute, kTensorComm and kPipelineComm; less of a bubble if interleaved.
Work pipeline_work(const UnitView& unit, MicroBatches batches, PassShape shape);

// One AdamW step over the unit's fullest rank.
Operations optimizer_work(const UnitView& unit);

}  // namespace nereus
