// Where a run begins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nereus/app/config/config.h"
#include "nereus/core/controller/controller.h"
#include "nereus/runtime/data/checkpoint.h"
#include "nereus/runtime/live/options.h"

namespace nereus {

// Its first step, and the checkpoint before it if it is a continuation.
struct Start {
  std::optional<Checkpoint> checkpoint;
  int step = 0;
  DevicePool pool;
  Plan plan;
  std::vector<std::string> notes;  // what a person who resumes should know
};

// With trainer.resume_mode auto, the newest complete checkpoint of the run directory, if there is
// any; a continuation keeps the plan it was stopped in, if its devices are still there. Throws
// Error(kInvalidInput) if there are checkpoints but all of them are damaged, or if the newest one
// is that of a job with other model-stages; Error(kInfeasible) if no plan fits.
Start find_start(const Config& config, const LiveOptions& options);

Controller make_controller(const Config& config, const LiveOptions& options, const Start& start);

}  // namespace nereus
