// What our runtime can carry out, and the constants of its kernels that the cost model counts with:
// written once, read by planner, cost model, drivers and the runtime itself.
#pragma once

#include <cstdint>

#include "nereus/core/workflow/job_spec.h"

namespace nereus {

// Logits that a pass over response tokens has at a time (elements): longer ones are cut.
inline constexpr int64_t kLogitChunk = int64_t{1} << 28;

// Tokens of a block of the KV cache (a power of two), and of prompts in one pass of generation.
inline constexpr int kCacheBlockTokens = 16;
inline constexpr int64_t kPromptTokensAtOnce = 8192;

// Model-stages that share no device run at once; there is one optimizer state per unit; state stays
// on its devices. So a plan may be predicted and compared that is refused here.
//
// Throws Error(kInvalidInput) naming the model-stage and what it asks for: offload of idle state,
// optimizer sharding (zero), expert parallelism (ep), a mixture of experts.
void verify_runnable(const Plan& plan, const JobSpec& job);

}  // namespace nereus
