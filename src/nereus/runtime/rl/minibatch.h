// Which samples an optimizer step sees, and their values as tensors and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "nereus/runtime/rl/sample.h"

namespace nereus {

// Indices of the samples of each optimizer step, over all epochs. Depends on its arguments only,
// never on replicas. Without shuffling: consecutive runs. The last mini-batch of an epoch may be
// smaller.
std::vector<std::vector<int64_t>> mini_batches(int64_t samples, int64_t mini_batch, int epochs,
                                               bool shuffle, uint64_t seed, int step);

// The tokens of a sample that losses and their normalisers count: its response, or none if it was
// not scored.
int64_t learnable_tokens(const Sample& sample);

// Per-token values of the given samples, concatenated in order: [n].
at::Tensor gather(const Experience& experience, std::span<const int64_t> samples,
                  std::vector<double> Sample::* member, const at::TensorOptions& options);
at::Tensor to_tensor(const std::vector<double>& values, const at::TensorOptions& options);
// The inverse: cuts flat [n] into the samples' response lengths and stores it in `member`.
void scatter(const at::Tensor& flat, std::span<const int64_t> samples,
             std::vector<double> Sample::* member, Experience& experience);

}  // namespace nereus
