// What the search chooses from: for each model-stage, where it may run and how, with its times and
// bytes. Everything is predicted once and on its own; only weight synchronisation needs two.
#pragma once

#include <vector>

#include "nereus/core/planner/placement.h"
#include "nereus/core/planner/planner.h"

namespace nereus {

// One way to run the passes of a placed model-stage: a micro-batch, and recomputation or not; of
// generation, a number of waves.
struct Variant {
  int micro_batch = 1;
  int waves = 1;
  bool recompute = false;
  bool is_current = false;       // so it is in the plan in force, devices aside
  std::vector<Seconds> passes;   // in the order of StageCandidates::nodes
  Seconds time;                  // their sum
  std::vector<Bytes> transient;  // by rank, calibrated
  Bytes most_transient;
};

// A model-stage on its devices, with its state there or in host memory; that does not depend on the
// variant.
struct Placement {
  StagePlan stage;  // of no particular variant
  Side side = Side::kFront;
  int first = 0, last = 0;      // positions on the line
  std::vector<int16_t> ranks;   // by position on the line; -1: not in use
  std::vector<Bytes> resident;  // by rank
  Bytes most_resident;
  std::vector<Bytes> parked;      // by rank, in the memory of its host; empty: nothing
  std::vector<Variant> variants;  // fastest first, none needing more memory than a faster one
};

struct StageCandidates {
  ModelStage model_stage;
  std::vector<int> nodes;             // of the workflow: the passes on this model-stage
  std::vector<Placement> placements;  // by the time of their fastest variant
};

// Power-of-two tp within a host and zero; power-of-two pp, to training also every other that
// shortens the longest stage; the numbers of units that divide the batch, or that have at most
// three binary digits and shorten the share of the fullest unit; of the allowed micro-batches those
// that make a difference; power-of-two waves. None depends on how much memory there is. `current`
// may be null; its degree is a candidate too.
StageCandidates stage_candidates(ModelStage model_stage, const JobSpec& job, const Cluster& cluster,
                                 const DeviceLine& line, const Calibration& calibration,
                                 const PlannerOptions& options, const Plan* current);

}  // namespace nereus
