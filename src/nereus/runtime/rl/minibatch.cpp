#include "nereus/runtime/rl/minibatch.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/base/random.h"

namespace nereus {

namespace {

// Keeps these permutations apart from other draws with the job's seed.
constexpr uint64_t kShuffleStreams = 0x6d696e69'00000000;

std::vector<int64_t> epoch_order(int64_t samples, bool shuffle, uint64_t seed, uint64_t pass) {
  if (shuffle) return permutation(samples, seed, kShuffleStreams + pass);
  std::vector<int64_t> order(static_cast<size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

int64_t learnable_tokens(const Sample& sample) {
  return sample.scored ? std::ssize(sample.response) : 0;
}

std::vector<std::vector<int64_t>> mini_batches(int64_t samples, int64_t mini_batch, int epochs,
                                               bool shuffle, uint64_t seed, int step) {
  NEREUS_CHECK(mini_batch > 0, "mini_batch must be positive, not " + std::to_string(mini_batch));
  std::vector<std::vector<int64_t>> batches;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto pass = static_cast<uint64_t>(step) * static_cast<uint64_t>(epochs) + epoch;
    const std::vector<int64_t> order = epoch_order(samples, shuffle, seed, pass);
    for (int64_t begin = 0; begin < samples; begin += mini_batch) {
      const int64_t end = std::min(begin + mini_batch, samples);
      batches.emplace_back(order.begin() + begin, order.begin() + end);
    }
  }
  return batches;
}

at::Tensor gather(const Experience& experience, std::span<const int64_t> samples,
                  std::vector<double> Sample::* member, const at::TensorOptions& options) {
  std::vector<double> values;
  for (const int64_t index : samples) {
    const Sample& sample = experience[index];
    const std::vector<double>& of_sample = sample.*member;
    NEREUS_CHECK(of_sample.size() == sample.response.size(),
                 "sample " + std::to_string(sample.id) + " has " +
                     std::to_string(of_sample.size()) + " values for " +
                     std::to_string(sample.response.size()) + " response tokens");
    values.insert(values.end(), of_sample.begin(), of_sample.end());
  }
  return to_tensor(values, options);
}

at::Tensor to_tensor(const std::vector<double>& values, const at::TensorOptions& options) {
  return at::tensor(values, at::kDouble).to(options);
}

void scatter(const at::Tensor& flat, std::span<const int64_t> samples,
             std::vector<double> Sample::* member, Experience& experience) {
  const at::Tensor host = flat.detach().to(at::kCPU, at::kDouble).contiguous();
  std::span<const double> left(host.const_data_ptr<double>(), static_cast<size_t>(host.numel()));
  for (const int64_t index : samples) {
    Sample& sample = experience[index];
    const size_t length = sample.response.size();
    NEREUS_CHECK(length <= left.size(), "scatter: too few values");
    const auto own = left.first(length);
    (sample.*member).assign(own.begin(), own.end());
    left = left.subspan(length);
  }
  NEREUS_CHECK(left.empty(), "scatter: " + std::to_string(left.size()) + " values too many");
}

}  // namespace nereus
