// From the user's words to the types of the rooms that do the work.
#pragma once

#include "nereus/app/config/config.h"
#include "nereus/core/controller/controller.h"
#include "nereus/runtime/live/options.h"

namespace nereus {

// With the GPUs that are visible here (devices.h). Throws Error(kInvalidInput).
Cluster to_cluster(const Config& config);

// Throws Error(kInvalidInput) for what only one host can do, and for a bad supply trace.
LiveOptions to_live_options(const Config& config);

ControllerOptions to_controller_options(const Config& config);

}  // namespace nereus
