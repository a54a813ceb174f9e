// Generation of one unit's share of responses: continuous batching over a paged KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "nereus/core/base/stop_token.h"
#include "nereus/core/workflow/sampling_params.h"
#include "nereus/runtime/cuda/graph.h"
#include "nereus/runtime/nn/decoder.h"

namespace nereus {

struct GenerationRequest {
  uint64_t sample_id = 0;       // logical sample: keys the noise
  std::vector<int64_t> prompt;  // not empty
  int64_t max_new_tokens = 0;   // of this one; 0: as the options say
};

struct GenerationResult {
  std::vector<int64_t> tokens;    // the EOS token included if it was drawn
  std::vector<double> log_probs;  // of those tokens
  bool finished = false;          // ended by an EOS token (not by the limit)
};

struct GenerationOptions {
  SamplingParams sampling;
  int64_t max_new_tokens = 0;
  std::vector<int64_t> eos_token_ids;  // several are usual
  bool ignore_eos = false;
  // The KV cache has room for 1 / cache_parts of what all sequences may need (at least for the
  // longest), and others wait for it.
  int cache_parts = 1;
  int64_t max_sequences = 0;  // in the batch at once; 0: all
  StopToken stop;             // looked at before each step
  // Called on this rank with the number of a request and its result, as soon as that is complete.
  std::function<void(size_t, const GenerationResult&)> on_finished;
};

// All ranks of the unit call it with equal arguments; every rank returns the same results, in the
// order of the requests. Prompts may have different lengths; what they begin with alike is computed
// once. The noise position is the token's index in the response, so that a sample's tokens do not
// depend on which others run beside it. GPUs record a step in `graph`, which is empty again in the
// end. Throws Stopped on any rank, at any step, after options.stop: the caller aborts the others.
std::vector<GenerationResult> generate(const DecoderStage& stage, Communicator& tp,
                                       Communicator& pp,
                                       const std::vector<GenerationRequest>& requests,
                                       const GenerationOptions& options, cuda::Graph& graph);

}  // namespace nereus
