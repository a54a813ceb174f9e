// What the search chooses from: for each model-stage, where it may run and how.
#pragma once

#include <vector>

#include "nereus/planner/planner.h"

namespace nereus {

// Bytes by position in the pool.
using BytesPerDevice = std::vector<Bytes>;

// One way to run the passes of a placed model-stage: a micro-batch and recomputation or not.
struct Variant {
  StagePlan stage;
  Seconds time;              // of all passes on this model-stage, weight synchronisation excepted
  BytesPerDevice transient;  // calibrated
};

// A model-stage on its devices: its state does not depend on the variant.
struct Placement {
  Layout layout;
  BytesPerDevice resident;
  std::vector<Variant> variants;  // fastest first, none needing more memory than a faster one
};

// All placements of a model-stage, by the time of their fastest variant. Equally fast variants: the
// one in `current` (may be null) first, then the smaller micro-batch.
std::vector<Placement> placements(ModelStage model_stage, const JobSpec& job,
                                  const Cluster& cluster, const DevicePool& pool,
                                  const Calibration& calibration, const PlannerOptions& options,
                                  const Plan* current);

}  // namespace nereus
