// From the user's words to what a job on real devices needs to know.
#pragma once

#include "nereus/app/config/config.h"
#include "nereus/runtime/live/options.h"

namespace nereus {

// With the GPUs that are visible here (app/assemble/devices.h). Throws Error(kInvalidInput) for
// what only one host can do, and for a bad supply trace.
LiveOptions to_live_options(const Config& config);

}  // namespace nereus
