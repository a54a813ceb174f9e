#include "nereus/runtime/live/pass_support.h"

#include <numeric>

namespace nereus {

std::vector<int64_t> share_of(const std::vector<int64_t>& items, int unit, int dp) {
  const auto count = static_cast<int64_t>(items.size());
  return {items.begin() + count * unit / dp, items.begin() + count * (unit + 1) / dp};
}

std::vector<int64_t> everything(const Experience& experience) {
  std::vector<int64_t> indices(experience.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

std::vector<MicroBatch> inputs_of(const std::vector<SampleBatch>& batches, Outputs outputs) {
  std::vector<MicroBatch> inputs;
  for (const SampleBatch& batch : batches) {
    inputs.push_back(outputs == Outputs::kPerToken ? batch.input : with_last_tokens(batch.input));
  }
  return inputs;
}

}  // namespace nereus
