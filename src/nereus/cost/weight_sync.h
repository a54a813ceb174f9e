// Bringing the weights of actor training to the actor's generation units.
#pragma once

#include "nereus/cost/operations.h"
#include "nereus/cost/site.h"

namespace nereus {

// What a generation rank's device does not hold for training already, it receives: from its own
// host if a whole training unit is there, else through the network that the host's devices share.
// `elements` of the weights that each generation rank holds. The slowest device decides.
Work sync_work(const StagePlan& training, const StagePlan& generation,
               const std::vector<int64_t>& elements, const ModelUse& actor, const Cluster& cluster);

}  // namespace nereus
