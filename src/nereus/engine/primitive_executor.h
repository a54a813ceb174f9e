// Executing the primitives of a transition on live state.
#pragma once

#include "nereus/engine/state_store.h"
#include "nereus/job/job.h"

namespace nereus {

// Runs the primitives of `dag` in its order on the store, `schema_of` giving each model-stage's
// state. With `verify`, hashes the logical state of every model-stage before and after and throws
// Error(kInternal) naming the first tensor that differs. Throws Error(kOutOfMemory) if a device's
// budget is exceeded. Host thread, between steps.
TransitionReport execute(const TransitionDag& dag, StateStore& store,
                         const std::function<StateSchema(ModelStage)>& schema_of, bool verify);

}  // namespace nereus
