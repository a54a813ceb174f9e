// What state needs done on NVIDIA GPUs: hashing and copying. In builds without CUDA every function
// throws Error(kInternal).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "nereus/core/state/box.h"

namespace nereus::cuda {

// Adds what engine's hash_shard() says of a shard to the one element of `sum` (int64, same device),
// on the calling thread's current stream. At most four dimensions.
void add_hash(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape,
              const at::Tensor& sum);

// Copies into one GPU: from others, or from pinned host memory, by the copy engines, at the full
// speed of the link and without taking anything from kernels that run meanwhile; within the GPU by
// kernels, at the same time. What is read must have been written before.
class Copies final {
 public:
  Copies() = default;
  ~Copies();  // waits as join() does, but begins nothing
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Views of the same shape and dtype, both with elements that follow each other in the last
  // dimension. What continues one of the last copies, in the same two storages, becomes part of it.
  void add(const at::Tensor& to, const at::Tensor& from);
  // Begins what was added, after all that was on the calling thread's current stream at the first
  // call: first what crosses the link.
  void enqueue();
  // What comes later on the calling thread's current stream waits for all copies.
  void join();

 private:
  struct Copy {  // `rows` runs of `width` bytes
    char* to = nullptr;
    const char* from = nullptr;
    int64_t width = 0, rows = 1;
    int64_t to_pitch = 0, from_pitch = 0;
    int from_device = -1;  // -1: the host
    // A copy must not reach from one allocation into the next, which may follow by chance.
    const void *to_storage = nullptr, *from_storage = nullptr;
  };
  struct Tensors {
    std::vector<at::Tensor> to, from;
  };
  void begin_over_links();
  void begin_within();
  void open_streams();
  void wait();

  int device_ = -1;
  std::vector<Copy> copies_;                 // over links
  std::map<at::ScalarType, Tensors> whole_;  // within the GPU, contiguous
  Tensors rows_;                             // within the GPU, the others
  std::vector<c10::Stream> streams_;         // the next copy is being set up while one runs
  size_t turn_ = 0;
};

}  // namespace nereus::cuda
