// Attention over a paged cache on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace nereus {

// q [n, heads, d] of n tokens against keys and values [blocks, block tokens, kv heads, d]. Token i
// belongs to row rows[i] of `tables` [rows, width] int32, which names the blocks of a sequence in
// order, and sees its first positions[i] + 1 tokens. rows and positions are [n] int64. → [n, heads
// · d]. What a token gets depends on nothing but itself and what it sees, to the bit. On the
// calling thread alone; sums are fp64 for fp64 and fp32 for all others.
at::Tensor host_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                          const at::Tensor& tables, const at::Tensor& rows,
                          const at::Tensor& positions);

}  // namespace nereus
