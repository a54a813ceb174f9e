// The passes of one PPO step over the units of a runtime. Each reads and fills the logical samples,
// and throws Stopped soon after its stop token is set.
#pragma once

#include <map>
#include <string>

#include "nereus/runtime/live/options.h"
#include "nereus/runtime/live/runtime.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

using Metrics = std::map<std::string, double>;  // verl's names

// Fills response, finished, rollout_log_probs. Throws Error(kInternal) if the generation weights
// are not of `version`, the trained ones' at the beginning of the step.
NodeTiming generate_responses(Runtime& runtime, Experience& experience, uint64_t version,
                              const GenerationOptions& options);

// Log-probabilities of the responses under a model-stage's weights into `member`.
NodeTiming infer_log_probs(Runtime& runtime, const std::string& name, ModelStage model_stage,
                           Experience& experience, std::vector<double> Sample::* member,
                           const PassOptions& options);
NodeTiming infer_values(Runtime& runtime, Experience& experience, StopToken stop);
// The reward model's score of prompt and response, read at their last token, into score and
// token_scores. Throws Error(kNumeric) for a score that is not finite.
NodeTiming infer_scores(Runtime& runtime, Experience& experience, StopToken stop);

struct UpdateOutcome {
  NodeTiming timing;
  Metrics metrics;  // grad_norm, lr and the loss's metrics
};
// One optimizer step per mini-batch and epoch of the critic, if there is one, and then of the
// actor: time in all, metrics as means over the mini-batches. Samples that were not scored weigh
// nothing in losses, their means and metrics; a mini-batch without a token of a scored sample is
// left out, and without any mini-batch there are no outcomes. Throws Error(kNumeric) before a
// mini-batch has changed anything. All of them, or, if options.stop comes before the first has
// changed anything, none: Stopped.
std::vector<UpdateOutcome> update_models(Runtime& runtime, const Experience& experience, int step,
                                         const LiveOptions& options);

}  // namespace nereus
