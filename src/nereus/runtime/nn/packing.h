// Sequences behind each other in one dimension, without padding between them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace nereus {

struct Packing {
  std::vector<int64_t> lengths;  // of the sequences, each at least 1
  at::Tensor positions;          // [n] int64: of each token in its sequence
  at::Tensor boundaries;         // [sequences + 1] int32: where they begin, and n
  at::Tensor slots;              // [n] int64: sequence · longest + position

  int64_t sequences() const { return std::ssize(lengths); }
  int64_t tokens() const { return positions.size(0); }
  int64_t longest() const;
  bool uniform() const { return sequences() * longest() == tokens(); }
};

// Tensors are on `device`. At least one sequence.
Packing pack(std::vector<int64_t> lengths, at::Device device);

// x [n, …] → [sequences, longest, …]: zeros behind what is shorter. Differentiable.
at::Tensor pad(const at::Tensor& x, const Packing& packing);
// The inverse.
at::Tensor unpad(const at::Tensor& padded, const Packing& packing);

}  // namespace nereus
