// The weights that a job starts from.
#pragma once

#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/live/options.h"
#include "nereus/runtime/live/runtime.h"

namespace nereus {

// Whether a model's scalar head may be new, or must have been trained before.
ScoreHead score_head(Role role);

// Creates the units of the plan with the weights of the options' models, one model at a time in
// host memory. Throws as read_model() does.
void load_models(Runtime& runtime, const Plan& plan, const LiveOptions& options);

}  // namespace nereus
