// Causal attention with grouped queries, over whole sequences or over a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include "nereus/runtime/nn/packing.h"

namespace nereus {

// Of n tokens, each [n, its heads, head_dim]; only the last dimension must be contiguous.
struct Heads {
  at::Tensor q, k, v;  // k and v have as many heads
};

// qkv [n, query heads + 2 · kv_heads, head_dim], cut.
Heads split_heads(const at::Tensor& qkv, int64_t kv_heads);

// Every sequence by itself: → [n, query heads · head_dim]. Differentiable.
at::Tensor causal_attention(const Heads& heads, const Packing& packing);

// New tokens of sequences of which more is known: heads.q of the new ones, packed as `packing`
// says; heads.k and heads.v of all up to the last new one, packed as `seen` says. The last tokens
// of a sequence are its new ones, and each sees all up to itself. → [n, query heads · head_dim]. No
// autograd.
at::Tensor continued_attention(const Heads& heads, const Packing& packing, const Packing& seen);

// One new token per row against `keys` and `values` [rows, kv heads, L, d]: q [rows, heads, d] →
// [rows, heads · d]. `mask` [rows, 1, 1, L] is added to the scores, if defined.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const at::Tensor& mask);

}  // namespace nereus
