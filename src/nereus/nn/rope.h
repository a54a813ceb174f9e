// Rotary position embedding, Hugging Face convention (rotate halves), with Llama-3 scaling.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nereus/model/model_spec.h"

namespace nereus {

// Angles per position of one pair of coordinates: head_dim / 2 numbers.
// Llama-3 scaling as in transformers' modeling_rope_utils.py, _compute_llama3_parameters.
std::vector<double> rope_frequencies(const ModelSpec& spec);

// Cosines and sines by position. `sin` has the sign of rotate_half folded in: its first half is
// negative.
struct RopeTables {
  at::Tensor cos;  // [positions, head_dim]
  at::Tensor sin;  // same
};

// Computed in fp64 for fp64 models and in fp32 for all others (as transformers does), then rounded
// to options' dtype.
RopeTables make_rope_tables(const ModelSpec& spec, int64_t positions,
                            const at::TensorOptions& options);

// x [..., head_dim] rotated; `tables` must broadcast to it.
at::Tensor apply_rope(const at::Tensor& x, const RopeTables& tables);

}  // namespace nereus
