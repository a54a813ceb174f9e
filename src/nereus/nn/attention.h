// Causal attention with grouped queries, over whole sequences or over a cache.
#pragma once

#include <ATen/core/Tensor.h>

namespace nereus {

// q [b, T, heads, d], k and v [b, T, kv heads, d] → [b, T, heads · d]. Differentiable.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// One new token per row against `keys` and `values` [b, kv heads, L, d]: q [b, 1, heads, d] →
// [b, 1, heads · d]. `mask` [b, 1, 1, L] is added to the scores, if defined.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const at::Tensor& mask);

}  // namespace nereus
