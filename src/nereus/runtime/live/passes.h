// The forward passes of a step over the units of a runtime. Each reads and fills the logical
// samples, and throws Stopped soon after its stop token is set. Any thread; passes over
// model-stages without a device in common may run at once, as long as no two of them fill the same
// field.
#pragma once

#include <functional>

#include "nereus/runtime/live/executor.h"
#include "nereus/runtime/live/runtime.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// Fills response, finished, rollout_log_probs, and calls `written`, if there is one, with the index
// of each sample as soon as it is complete: on threads of the devices, and again if memory was
// short and responses are written anew (they are the same). Throws Error(kInternal) if the
// generation weights are not of `version`, the trained ones' at the beginning of the step.
PassResult generate_responses(Runtime& runtime, Experience& experience, uint64_t version,
                              const GenerationOptions& options,
                              const std::function<void(size_t)>& written = nullptr);

// Log-probabilities of the responses under a model-stage's weights into `member`.
PassResult infer_log_probs(Runtime& runtime, ModelStage model_stage, Experience& experience,
                           std::vector<double> Sample::* member, const PassOptions& options);
PassResult infer_values(Runtime& runtime, Experience& experience, StopToken stop);
// The reward model's score of prompt and response, read at their last token, into score and
// token_scores. Throws Error(kNumeric) for a score that is not finite.
PassResult infer_scores(Runtime& runtime, Experience& experience, StopToken stop);

}  // namespace nereus
