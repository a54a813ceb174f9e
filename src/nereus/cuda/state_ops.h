// What state needs done on NVIDIA GPUs: hashing and copying. In builds without CUDA every function
// throws Error(kInternal).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nereus/state/box.h"

namespace nereus::cuda {

// Adds what engine's hash_shard() says of a shard to the one element of `sum` (int64, same device),
// on the calling thread's current stream. At most four dimensions.
void add_hash(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape,
              const at::Tensor& sum);

// Copies into one GPU: from others, or from pinned host memory, at the full speed of the link; at
// the same time within the GPU. What is read must have been written before.
class Copies final {
 public:
  // The copy engines take nothing from kernels that run meanwhile, but need two or three times as
  // long as the link for short runs cut out of long rows, which a kernel copies at its full speed.
  // `beside_kernels`: copy engines only.
  explicit Copies(bool beside_kernels = false) : beside_kernels_(beside_kernels) {}
  ~Copies();  // joins
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Views of the same shape and dtype, both with elements that follow each other in the last
  // dimension. What continues one of the last copies, in both places, becomes part of it.
  void add(const at::Tensor& to, const at::Tensor& from);
  // Begins what was added, after all that is on the calling thread's current stream.
  void enqueue();
  // What comes later on that stream waits for all copies.
  void join();

 private:
  struct Copy {  // `rows` runs of `width` bytes
    char* to = nullptr;
    const char* from = nullptr;
    int64_t width = 0, rows = 1;
    int64_t to_pitch = 0, from_pitch = 0;
    int from_device = -1;  // -1: the host
  };
  struct LocalCopy {
    at::Tensor to, from;
  };
  void copy(const Copy& copy, c10::Stream stream) const;

  bool beside_kernels_;
  int device_ = -1;
  std::vector<Copy> copies_;
  std::vector<LocalCopy> local_;
  std::vector<c10::Stream> streams_;  // the next copy is being set up while one runs
  size_t turn_ = 0;
};

}  // namespace nereus::cuda
