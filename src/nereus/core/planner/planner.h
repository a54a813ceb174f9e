// Finds the fastest plan that fits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nereus/core/cost/memory.h"
#include "nereus/core/cost/step_latency.h"

namespace nereus {

struct PlannerOptions {
  double headroom = 0.1;           // share of device memory kept free
  std::vector<int> micro_batches;  // allowed values; empty: powers of two up to the mini-batch
  std::map<Role, std::vector<int>> own_micro_batches = {};  // in place of those, for some models
  bool allow_recompute = true;                              // may trade time for activation memory
  // What the runtime that carries the plan out must support; ours does not train with either yet.
  bool allow_offload = false;  // idle state may wait in the memory of its host
  int most_zero = 1;           // ZeRO-1 over at most so many data-parallel ranks
  // The space of placements. Colocated: all model-stages begin with the first device of the line.
  // Side by side: each on any contiguous group, so that they may be disjoint or overlap in part, as
  // begins.h says; pays where the runtime runs independent passes at once.
  bool side_by_side = false;
  int every_begin = 16;    // side by side on pools of at most so many devices: from any device on
  int places = 32;         // on larger ones: from about so many places on, or one for each host
  int keep = 8;            // runners-up to report
  double tolerance = 0.2;  // runners-up are at most this much slower than the best
};

// The micro-batches that the passes of a model may have; empty: powers of two.
const std::vector<int>& allowed_micro_batches(const PlannerOptions& options, Role role);

struct Candidate {
  Plan plan;
  StepLatency latency;
};

struct PlanChoice {
  Candidate best;
  // Feasible, slower than best, by predicted time. Each lays out actor training or generation
  // differently than all before it.
  std::vector<Candidate> alternatives;
};

// Exact over power-of-two tp (within a host), pp and zero, in training every other pp that shortens
// the longest stage, dp, micro-batch, recompute, waves and offload for each model-stage on
// contiguous devices of `pool`, in the space of placements of begins.h; deterministic. Among
// equally fast plans prefers fewer changes from `current` (may be null), then the smaller tp·pp.
// Pools of any size: as many devices are used as a layout allows and the batch can feed. Errors say
// what is closest to fitting and by how much it fails.
Expected<PlanChoice> choose_plan(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                                 const Calibration& calibration, const PlannerOptions& options,
                                 const Plan* current = nullptr);

// One stage's plan with dp units on the first devices of the pool's line.
StagePlan place(ModelStage model_stage, Layout layout, int dp, int micro_batch, bool recompute,
                const DevicePool& pool);

}  // namespace nereus
