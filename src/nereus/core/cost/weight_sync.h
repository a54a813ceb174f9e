// Bringing the weights of actor training to the actor's generation units.
#pragma once

#include "nereus/core/cost/operations.h"
#include "nereus/core/plan/plan.h"
#include "nereus/core/state/overlap.h"

namespace nereus {

// What a generation rank's device does not hold for training already, it receives from the training
// ranks that hold most of it, from a replica on its own host if there is one, in turns; every
// device for itself, as reshard() moves it. The busiest device or NIC decides, whichever way the
// bytes go. `weights` summarises the schema of the actor's generation.
Work sync_work(const StagePlan& training, const StagePlan& generation, const SchemaSummary& weights,
               const Cluster& cluster);

}  // namespace nereus
