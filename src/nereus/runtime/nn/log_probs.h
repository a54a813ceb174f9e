// The end of a language model: from hidden states to log-probabilities, without a tensor of all
// logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nereus/core/workflow/capabilities.h"
#include "nereus/runtime/comm/communicator.h"

namespace nereus {

struct LogProbs {
  at::Tensor log_probs;  // [n], fp32 (fp64 for fp64 weights), differentiable
  at::Tensor entropy;    // [n], same; undefined unless asked for
};

struct LogProbOptions {
  double temperature = 1;
  int64_t vocab_begin = 0;  // first row of the vocabulary that `weight` has
  bool with_entropy = false;
  int64_t chunk_elements = kLogitChunk;  // logits that exist at a time
};

// Log-probability of `targets` [n] under softmax(logits / temperature), logits = hidden · weightᵀ,
// and its entropy; softmax in fp32 at least. hidden [n, h]; weight [vocab/tp, h], this rank's rows.
// Rows are taken in chunks, whose logits are computed again in backward (unless one chunk is all).
// The gradient of `hidden` is this rank's partial sum: see copy_to_tp(). Every TP rank must call
// it; three collectives in all.
LogProbs vocab_parallel_log_probs(const at::Tensor& hidden, const at::Tensor& weight,
                                  const at::Tensor& targets, const LogProbOptions& options,
                                  Communicator& tp);

}  // namespace nereus
