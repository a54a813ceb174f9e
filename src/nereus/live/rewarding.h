// Scoring the responses of a step.
#pragma once

#include "nereus/bridge/tokenizer.h"
#include "nereus/live/ppo_step.h"
#include "nereus/live/prompt_source.h"
#include "nereus/rl/rewards/reward.h"

namespace nereus {

// The reward of a job: one of make_reward()'s, or "python": that of a file, {path, function}.
// Throws as PythonReward and make_reward() do.
std::unique_ptr<Reward> open_reward(const LiveOptions& options);

// Decodes the responses and fills score and token_scores; further numbers that the reward gives are
// averaged as metrics["reward/NAME/mean"]. A reward that throws gives its sample 0
// and counts in metrics["reward/failures"]; more than options.max_reward_failures of the samples
// throw Error(kInvalidInput) with the first message, so that a broken reward never passes for a bad
// model. With options.rollout_directory, what was written and how it was scored is kept there as
// STEP.jsonl (steps counted from 1), in verl's form.
NodeTiming score_responses(Experience& experience, int step, const Reward& reward,
                           const Tokenizer& tokenizer, const PromptSource& prompts,
                           const LiveOptions& options, Metrics& metrics);

}  // namespace nereus
