// `nereus transition --run`: a transition on virtual devices of this machine, with random state.
#pragma once

#include "nereus/core/job/job.h"
#include "nereus/runtime/engine/state_store.h"

namespace nereus {

// Makes all units of `stage` in the store, with one random logical state that `seed` decides.
void make_random_state(StateStore& store, const StagePlan& stage, const StateSchema& schema,
                       uint64_t seed);

// Makes the units of dag.from on virtual devices within the cluster's budgets, moves them and
// proves by hashes that no bit changed. Throws Error: kInvalidInput if this machine has less memory
// than all devices together need, kOutOfMemory if a device's budget was exceeded, kInternal if the
// state changed.
TransitionReport try_transition(const TransitionDag& dag, const JobSpec& job,
                                const Cluster& cluster);

}  // namespace nereus
