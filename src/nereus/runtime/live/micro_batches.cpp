#include "nereus/runtime/live/micro_batches.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

SampleBatch make_batch(const Experience& experience, std::span<const int64_t> samples,
                       at::Device device) {
  std::vector<int64_t> tokens, lengths, predicts, targets;
  for (const int64_t index : samples) {
    const Sample& sample = experience[index];
    NEREUS_CHECK(!sample.prompt.empty(), "sample " + std::to_string(sample.id) + " has no prompt");
    tokens.insert(tokens.end(), sample.prompt.begin(), sample.prompt.end());
    // The output at a position predicts the token after it.
    for (const int64_t token : sample.response) {
      predicts.push_back(std::ssize(tokens) - 1);
      targets.push_back(token);
      tokens.push_back(token);
    }
    lengths.push_back(std::ssize(sample.prompt) + std::ssize(sample.response));
  }
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).to(device);
  };
  return {{.tokens = on_device(tokens),
           .packing = pack(std::move(lengths), device),
           .predicts = on_device(predicts),
           .targets = on_device(targets)},
          {samples.begin(), samples.end()}};
}

}  // namespace

std::vector<SampleBatch> micro_batches(const Experience& experience,
                                       std::span<const int64_t> indices, int64_t micro_batch,
                                       at::Device device) {
  NEREUS_CHECK(micro_batch > 0, "micro_batch must be positive, not " + std::to_string(micro_batch));
  std::vector<SampleBatch> batches;
  while (!indices.empty()) {
    const size_t size = std::min(indices.size(), static_cast<size_t>(micro_batch));
    batches.push_back(make_batch(experience, indices.first(size), device));
    indices = indices.subspan(size);
  }
  return batches;
}

MicroBatch with_last_tokens(MicroBatch input) {
  const Packing& packing = input.packing;
  input.predicts = packing.boundaries.narrow(0, 1, packing.sequences()).to(at::kLong) - 1;
  input.targets = at::Tensor();  // no scalar head reads them
  return input;
}

}  // namespace nereus
