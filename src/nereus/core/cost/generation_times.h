// Ideal time of generation on one unit.
#pragma once

#include "nereus/core/cost/pass_times.h"

namespace nereus {

// Prefill and decode steps of the unit's share of the samples, wave by wave; a wave's batch shrinks
// as sequences end. A step takes A + c · batch: weights and launches, and for each sequence
// arithmetic, cache and sampling. One batch at a time passes the pipeline stages, so they take
// turns.
Work generation_work(const UnitView& unit);

}  // namespace nereus
