// From logical samples to the tensors that passes consume, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "nereus/runtime/nn/pipeline.h"
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

// The samples of one micro-batch: `samples` are indices into the experience, in the order of the
// sequences of `input`.
struct SampleBatch {
  MicroBatch input;
  std::vector<int64_t> samples;
};

// Cuts `indices` into runs of at most `micro_batch` samples. Tensors are on `device`.
std::vector<SampleBatch> micro_batches(const Experience& experience,
                                       std::span<const int64_t> indices, int64_t micro_batch,
                                       at::Device device);

// The micro-batch with each sequence's last token in place of those that predict response tokens:
// passes give one output per sample.
MicroBatch with_last_tokens(MicroBatch input);

// Per-token values of the given samples, concatenated in order: [n].
at::Tensor gather(const Experience& experience, std::span<const int64_t> samples,
                  std::vector<double> Sample::* member, const at::TensorOptions& options);
at::Tensor to_tensor(const std::vector<double>& values, const at::TensorOptions& options);
// The inverse: cuts flat [n] into the samples' response lengths and stores it in `member`.
void scatter(const at::Tensor& flat, std::span<const int64_t> samples,
             std::vector<double> Sample::* member, Experience& experience);

}  // namespace nereus
