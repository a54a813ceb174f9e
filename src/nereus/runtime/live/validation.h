// Scoring the actor on prompts that it is not trained on.
#pragma once

#include "nereus/runtime/live/passes.h"
#include "nereus/runtime/live/prompt_source.h"
#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// Changes nothing of the training: it draws its noise from samples that no step has, and leaves
// weights, data order and the record of rollouts alone. Every validation draws the same noise, so
// that two of them differ by the weights alone. Used by the host thread only.
class Validation final {
 public:
  // Reads the prompts of options.validation.file as PromptSource does. Tokenizer and reward outlive
  // it; without a reward the job's reward model scores. `longest`: tokens of the training's longest
  // prompt.
  Validation(const LiveOptions& options, int64_t longest, int64_t vocab_size,
             const Tokenizer& tokenizer, const Reward* reward);

  // Is one due after `step`, counted from 0?
  bool follows(int step) const;
  const PromptSource& prompts() const { return prompts_; }
  // Samples that are generated at once: those of a step, or fewer if the prompts are longer.
  int64_t batch_size(int64_t response_limit) const;

  // Responses of up to `response_limit` tokens to all prompts, by the generation units, whose
  // weights must be of `version`, batch by batch.
  // Returns, in verl's words, val-core/SOURCE/reward/mean@N for each data_source of the prompts
  // ("unknown" if they have none) with N responses to each, over those that could be scored (or
  // all, if the others are to count as 0), val-aux/response_length/mean, what score() says as
  // val-aux/reward/…, and timing_s/testing. Throws as generate_responses() and score() do.
  Metrics run(Runtime& runtime, uint64_t version, int64_t response_limit) const;

 private:
  Experience all_samples() const;
  Metrics scored(Runtime& runtime, Experience& experience) const;

  LiveOptions options_;  // the job's, with the prompts and the sampling of the validation
  int64_t step_samples_;
  int64_t longest_;  // tokens of the training's longest prompt
  const Tokenizer& tokenizer_;
  const Reward* reward_;
  PromptSource prompts_;
};

// What of the job's options differs in a validation: its prompts, in the order of the file, and its
// sampling; nothing is kept of its responses.
LiveOptions for_validation(LiveOptions options);

}  // namespace nereus
