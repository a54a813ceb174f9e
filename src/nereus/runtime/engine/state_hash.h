// Hashes of logical tensors that add up over shards: each device hashes the bytes it holds, and the
// sum does not depend on how the tensor was cut.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nereus/core/state/box.h"

namespace nereus {

// What the elements of `box` contribute to the hash of a tensor of global `shape`; `shard` is
// contiguous, in host memory, and has the box's extent. The sum over any partition of the tensor is
// its hash:
//   Σ mix(bits(x_i) + i · φ) mod 2^64,   i: flat global index,
// where mix is SplitMix64's bijection (Steele, Lea and Flood, OOPSLA 2014). One changed bit always
// changes the hash; exchanged elements and any other difference do but for a chance of 2^-64 (a
// hash that is linear in the bits, Σ bits · r(i), would miss exchanged doubles, whose differences
// are multiples of high powers of two).
uint64_t hash_shard(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape);

// Many of them, where the shards are: on their own device all hashing is enqueued at once, and only
// take() waits for it.
class ShardHashes final {
 public:
  // `count` slots for shards on `device`, on whose worker it is used.
  ShardHashes(at::Device device, size_t count);
  // Adds hash_shard() to a slot.
  void add(size_t slot, const at::Tensor& shard, const Box& box, std::span<const int64_t> shape);
  std::vector<uint64_t> take() const;

 private:
  std::vector<uint64_t> on_host_;
  at::Tensor on_device_;  // [count] int64; undefined on the CPU
};

}  // namespace nereus
