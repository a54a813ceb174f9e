// Hashes of logical tensors that add up over shards: each device hashes the bytes it holds, and the
// sum does not depend on how the tensor was cut.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "nereus/state/box.h"

namespace nereus {

// What the elements of `box` contribute to the hash of a tensor of global `shape`; `shard` is
// contiguous and has the box's extent. The sum over any partition of the tensor is its hash:
//   Σ mix(bits(x_i) + i · φ) mod 2^64,   i: flat global index,
// where mix is SplitMix64's bijection (Steele, Lea and Flood, OOPSLA 2014). One changed bit always
// changes the hash; exchanged elements and any other difference do but for a chance of 2^-64 (a
// hash that is linear in the bits, Σ bits · r(i), would miss exchanged doubles, whose differences
// are multiples of high powers of two).
uint64_t hash_shard(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape);

// The same number by ATen operations, where the tensor is: hash_shard() does this for tensors that
// are not in host memory. Needs about 32 MiB of scratch memory beside the tensor.
uint64_t hash_shard_by_ops(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape);

}  // namespace nereus
