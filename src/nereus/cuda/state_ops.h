// What state needs done on NVIDIA GPUs: hashing and copying. In builds without CUDA every function
// throws Error(kInternal).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nereus/state/box.h"

namespace nereus::cuda {

// Adds what engine's hash_shard() says of a shard to the one element of `sum` (int64, same device),
// on the calling thread's current stream. At most four dimensions.
void add_hash(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape,
              const at::Tensor& sum);

// Copies from other GPUs, or from pinned host memory, into one GPU by its copy engines: at the full
// speed of the link, and so that they take nothing from kernels that run meanwhile.
class Copies final {
 public:
  // Views of the same shape and dtype, both with elements that follow each other in the last
  // dimension. What continues one of the last copies, in both places, becomes part of it.
  void add(const at::Tensor& to, const at::Tensor& from);
  // Enqueues them after what is on the calling thread's current stream of the device, and before
  // what comes later on it. What is read must have been written before.
  void enqueue();

 private:
  struct Copy {  // `rows` runs of `width` bytes
    char* to = nullptr;
    const char* from = nullptr;
    int64_t width = 0, rows = 1;
    int64_t to_pitch = 0, from_pitch = 0;
    int to_device = -1, from_device = -1;  // -1: the host
  };
  std::vector<Copy> copies_;
};

}  // namespace nereus::cuda
