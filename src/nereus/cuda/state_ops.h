// What state needs done on NVIDIA GPUs: hashing and copying. In builds without CUDA every function
// throws Error(kInternal).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nereus/state/box.h"

namespace nereus::cuda {

// Devices that this program can use; 0 in builds without CUDA.
int device_count();

// Adds what engine's hash_shard() says of a shard to the one element of `sum` (int64, same device),
// on the calling thread's current stream. At most four dimensions.
void add_hash(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape,
              const at::Tensor& sum);

// Copies from GPU memory, or pinned host memory, into GPU memory by the copy engines, so that they
// take nothing from kernels that run meanwhile; between GPUs at the full speed of their link.
class Copies final {
 public:
  // Views of the same shape and dtype, both with elements that follow each other in the last
  // dimension. What continues the copy before it, in both places, becomes part of it.
  void add(const at::Tensor& to, const at::Tensor& from);
  // Enqueues them on the calling thread's current stream of the device of the last `to`. What is
  // read must have been written before.
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
