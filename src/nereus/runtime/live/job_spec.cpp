#include "nereus/core/workflow/job_parts.h"
#include "nereus/runtime/files/model_config.h"
#include "nereus/runtime/live/options.h"

namespace nereus {

JobSpec job_spec(const LiveOptions& options, int step) {
  JobParts parts{.dtype = options.dtype,
                 .ppo = options.ppo,
                 .actor_optimizer = options.actor_optimizer,
                 .critic_optimizer = options.critic_optimizer,
                 .prompts = options.data.train_batch_size,
                 .samples_per_prompt = options.data.samples_per_prompt,
                 .prompt_limit = options.data.max_prompt_length,
                 .response_limit = options.response_length.at(step),
                 .longest_response = options.response_length.longest(),
                 .total_steps = options.total_steps,
                 .on_gpus = !options.backend.is_cpu()};
  for (const auto& [role, source] : options.models) {
    parts.models[role] = read_model_spec(source.path);
  }
  return make_job_spec(parts);
}

}  // namespace nereus
