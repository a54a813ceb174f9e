// The common part of execute() and recover(): running primitives whose moves are known.
#pragma once

#include <vector>

#include "nereus/runtime/engine/transition_executor.h"

namespace nereus {

// Executes dag.primitives, primitive i copying what moves[i] says, and destroys every unit of
// dag.units that is not in dag.to. All units that are read exist in the store or are made on the
// way; chunks of targets that are valid already stay as they are. The report has no verification.
TransitionReport run_primitives(const TransitionDag& dag, const std::vector<ReshardPlan>& moves,
                                StateStore& store,
                                const std::function<StateSchema(ModelStage)>& schema_of,
                                const ExecuteOptions& options);

// Throws Error(kInternal) naming the first tensor of `actual` whose hash is not the expected one.
void check_equal(const StageHashes& expected, const StageHashes& actual);

// The threads to work on.
const WorkerPool& workers_for(const StateStore& store, const ExecuteOptions& options);

// The units that `indices` name.
EmuCollection units_at(const TransitionDag& dag, const std::vector<int>& indices);

}  // namespace nereus
