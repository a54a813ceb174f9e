// Scoring the responses of a step.
#pragma once

#include <string>

#include "nereus/runtime/bridge/tokenizer.h"
#include "nereus/runtime/live/early_scores.h"
#include "nereus/runtime/live/passes.h"
#include "nereus/runtime/live/prompt_source.h"
#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// The reward of a job: one of make_reward()'s, or "python": that of a file, {path, function}.
// Throws as PythonReward and make_reward() do.
std::unique_ptr<Reward> open_reward(const LiveOptions& options);

// Decodes the responses and fills score and token_scores; further numbers that the reward gives are
// averaged as metrics["reward/NAME/mean"]. A sample whose score could not be had has `scored` false
// and score 0; such are counted in metrics["reward/failures"], those of them for lack of time in
// "reward/timeouts", those whose process died in "reward/crashes", and the first reason is logged;
// more than options.max_reward_failures of the samples throw Error(kInvalidInput) with it, so that
// a broken reward never passes for a bad model. With options.rollout_directory, what was written
// and how it was scored (null: not) is kept there as STEP.jsonl (steps counted from 1), in verl's
// form. Throws Stopped within a second after options.stop says so.
//
// `early`: what is known already of some of the samples, or null.
PassResult score_responses(Experience& experience, int step, const Reward& reward,
                           const Tokenizer& tokenizer, const PromptSource& prompts,
                           const LiveOptions& options, EarlyScores* early = nullptr);

// The same by the job's reward model, which cannot fail on single samples and gives no further
// numbers.
PassResult score_by_model(Runtime& runtime, Experience& experience, int step,
                          const Tokenizer& tokenizer, const PromptSource& prompts,
                          const LiveOptions& options);

// By `reward`, or by the job's reward model if it is null.
PassResult score(Runtime& runtime, Experience& experience, int step, const Reward* reward,
                 const Tokenizer& tokenizer, const PromptSource& prompts,
                 const LiveOptions& options, EarlyScores* early = nullptr);

// What became of a reward that was tried on prompts.
struct RewardTrial {
  int64_t failures = 0;  // prompts to which it could score no response
  int64_t first = -1;    // row of the first of them (PromptSource::Entry::index); -1: none
  std::string message;   // what the reward said of it
};

// Scores one made-up response to each prompt (the prompt's own tokens and some of the whole
// vocabulary), so that a reward that asks for what the prompts or the tokenizer do not have is
// found before anything runs.
RewardTrial try_reward(const Reward& reward, const Tokenizer& tokenizer,
                       const PromptSource& prompts, int64_t vocab_size);

}  // namespace nereus
