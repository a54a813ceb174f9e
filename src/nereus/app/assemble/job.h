// From the user's words to what is planned: a JobSpec and how to decide. No tensors, no devices.
#pragma once

#include <map>

#include "nereus/app/config/config.h"
#include "nereus/core/controller/controller.h"
#include "nereus/core/workflow/job_parts.h"
#include "nereus/runtime/files/model_config.h"
#include "nereus/runtime/supply/schedule.h"

namespace nereus {

// The models that the configured job has: the actor, a critic if the algorithm trains one, a
// reference (the actor as it was) if there is a KL term, a reward model if it is enabled.
std::map<Role, ModelSource> model_sources(const Config& config);

PpoOptions to_ppo_options(const Config& config);
OptimizerOptions to_actor_optimizer(const Config& config);
OptimizerOptions to_critic_optimizer(const Config& config);
LengthSchedule to_response_length(const Config& config);

// The job with the lengths of a step, on GPUs or on virtual devices of the CPU. Reads the models'
// config.json. Throws Error(kInvalidInput) naming file or option: what cannot be read, and what
// contradicts itself (make_job_spec()).
JobSpec to_job_spec(const Config& config, bool on_gpus, int step = 0);

ControllerOptions to_controller_options(const Config& config);

}  // namespace nereus
