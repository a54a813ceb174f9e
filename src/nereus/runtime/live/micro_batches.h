// From logical samples to the micro-batches that passes consume.
#pragma once

#include <span>
#include <vector>

#include "nereus/runtime/nn/pipeline.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// The samples of one micro-batch: `samples` are indices into the experience, in the order of the
// sequences of `input`.
struct SampleBatch {
  MicroBatch input;
  std::vector<int64_t> samples;
};

// Cuts `indices` into runs of at most `micro_batch` samples. Tensors are on `device`. Throws
// Error(kInternal) for a sample without a prompt.
std::vector<SampleBatch> micro_batches(const Experience& experience,
                                       std::span<const int64_t> indices, int64_t micro_batch,
                                       at::Device device);

// The micro-batch with each sequence's last token in place of those that predict response tokens:
// passes give one output per sample.
MicroBatch with_last_tokens(MicroBatch input);

}  // namespace nereus
