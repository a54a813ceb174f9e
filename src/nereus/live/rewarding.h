// Scoring the responses of a step.
#pragma once

#include "nereus/bridge/tokenizer.h"
#include "nereus/live/ppo_step.h"
#include "nereus/live/prompt_source.h"
#include "nereus/rl/rewards/reward.h"

namespace nereus {

// Decodes the responses and fills score and token_scores. A reward that throws gives its sample 0
// and counts in metrics["reward/failures"]; more than options.max_reward_failures of the samples
// throw Error(kInvalidInput) with the first message, so that a broken reward never passes for a bad
// model.
NodeTiming score_responses(Experience& experience, const Reward& reward, const Tokenizer& tokenizer,
                           const PromptSource& prompts, const LiveOptions& options,
                           Metrics& metrics);

}  // namespace nereus
