// Autograd functions with collectives: the joints of tensor parallelism (Megatron-LM's f and g).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nereus/runtime/comm/communicator.h"

namespace nereus {

// All of these run their collectives in forward and backward on the calling rank's thread; every TP
// rank must run the same sequence. Without autograd recording they are the plain forward. No effect
// for tp 1.

// Identity forward, all-reduce backward: enters a column-parallel region.
at::Tensor copy_to_tp(const at::Tensor& x, Communicator& tp);
// All-reduce forward, identity backward: leaves a row-parallel region. Without autograd the partial
// sum `x` itself is overwritten.
at::Tensor reduce_from_tp(const at::Tensor& x, Communicator& tp);

// Rows [vocab_begin, vocab_begin + weight.size(0)) of the embedding live here. tokens int64 any
// shape →
// [..., hidden], summed over ranks.
at::Tensor vocab_parallel_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                                    int64_t vocab_begin, Communicator& tp);

// The graph of residual + reduce_from_tp(linear(x, weight)), without its values: how a block ends
// that runs again only for its backward, which does not read them. residual [n, h], x [n, k],
// weight [h, k] → [n, h] of no meaning.
at::Tensor unevaluated_residual_linear(const at::Tensor& residual, const at::Tensor& x,
                                       const at::Tensor& weight);

}  // namespace nereus
