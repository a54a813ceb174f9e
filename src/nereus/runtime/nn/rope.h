// Rotary position embedding, Hugging Face convention (rotate halves), with Llama-3 scaling.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nereus/core/model/model_spec.h"

namespace nereus {

// Angles per position of one pair of coordinates: head_dim / 2 numbers.
// Llama-3 scaling as in transformers' modeling_rope_utils.py, _compute_llama3_parameters.
std::vector<double> rope_frequencies(const ModelSpec& spec);

struct RopeTables {
  at::Tensor cos;  // [positions, head_dim / 2]
  at::Tensor sin;  // same
};

// Computed in fp64 for fp64 models and in fp32 for all others (as transformers does), then rounded
// to options' dtype.
RopeTables make_rope_tables(const ModelSpec& spec, int64_t positions,
                            const at::TensorOptions& options);

// x [n, heads, head_dim], contiguous within a token → the same with the first `rotated` heads
// turned to their token's position (int64 [n], rows of the tables). Differentiable.
at::Tensor apply_rope(const at::Tensor& x, int64_t rotated, const RopeTables& tables,
                      const at::Tensor& positions);

}  // namespace nereus
