#include "nereus/runtime/rl/minibatch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "nereus/core/base/error.h"
#include "nereus/runtime/rl/testing.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(MiniBatches, InOrderWithASmallerRest) {
  EXPECT_THAT(mini_batches(5, 2, 2, false, 0, 0),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4), ElementsAre(0, 1),
                          ElementsAre(2, 3), ElementsAre(4)));
}

TEST(MiniBatches, ShufflingVisitsEachSampleOncePerEpoch) {
  const auto batches = mini_batches(20, 10, 2, true, 3, 7);
  ASSERT_EQ(batches.size(), 4U);
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> seen = batches[2 * epoch];
    std::ranges::copy(batches[2 * epoch + 1], std::back_inserter(seen));
    std::ranges::sort(seen);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(seen[i], i);
  }
  EXPECT_NE(batches[0], batches[2]);
  EXPECT_EQ(batches, mini_batches(20, 10, 2, true, 3, 7));
  EXPECT_NE(batches, mini_batches(20, 10, 2, true, 3, 8));
  EXPECT_NE(batches, mini_batches(20, 10, 2, true, 4, 7));
}

TEST(MicroBatches, SamplesBehindEachOther) {
  const Experience experience = samples_of({3, 1, 0});
  const std::vector<int64_t> indices = {1, 0, 2};
  const auto batches = micro_batches(experience, indices, 2, at::kCPU);
  ASSERT_EQ(batches.size(), 2U);

  const SampleBatch& first = batches[0];
  EXPECT_THAT(first.samples, ElementsAre(1, 0));
  EXPECT_THAT(first.input.packing.lengths, ElementsAre(3, 5));
  EXPECT_THAT(values(first.input.tokens), ElementsAre(10, 11, 100, 0, 1, 0, 1, 2));
  EXPECT_THAT(values(first.input.predicts), ElementsAre(1, 4, 5, 6));
  EXPECT_THAT(values(first.input.targets), ElementsAre(100, 0, 1, 2));

  EXPECT_THAT(batches[1].samples, ElementsAre(2));
  EXPECT_THAT(batches[1].input.packing.lengths, ElementsAre(2));
  EXPECT_THAT(values(batches[1].input.predicts), IsEmpty());
}

TEST(MicroBatches, LastTokensAreThoseOfTheSequences) {
  const Experience experience = samples_of({3, 1, 0});
  const std::vector<int64_t> indices = {1, 0, 2};
  const auto batches = micro_batches(experience, indices, 3, at::kCPU);
  const MicroBatch input = with_last_tokens(batches.front().input);
  EXPECT_THAT(input.packing.lengths, ElementsAre(3, 5, 2));
  EXPECT_THAT(values(input.predicts), ElementsAre(2, 7, 9));
  EXPECT_TRUE(at::equal(input.tokens, batches.front().input.tokens));
}

TEST(MicroBatches, NothingToDo) {
  EXPECT_THAT(micro_batches(samples_of({1}), {}, 4, at::kCPU), IsEmpty());
}

TEST(GatherScatter, AreInverse) {
  Experience experience = samples_of({2, 0, 3});
  experience[0].values = {1, 2};
  experience[2].values = {3, 4, 5};
  const std::vector<int64_t> order = {2, 1, 0};
  const at::Tensor flat = gather(experience, order, &Sample::values, at::TensorOptions(at::kFloat));
  EXPECT_TRUE(at::equal(flat, at::tensor({3.0F, 4.0F, 5.0F, 1.0F, 2.0F})));
  scatter(flat, order, &Sample::old_log_probs, experience);
  for (const Sample& sample : experience) EXPECT_EQ(sample.old_log_probs, sample.values);
}

TEST(GatherScatter, WrongSizesAreBugs) {
  Experience experience = samples_of({2});
  const std::vector<int64_t> order = {0};
  EXPECT_THROW(gather(experience, order, &Sample::values, at::TensorOptions()), Error);
  EXPECT_THROW(scatter(at::zeros({1}), order, &Sample::values, experience), Error);
  EXPECT_THROW(scatter(at::zeros({3}), order, &Sample::values, experience), Error);
}

}  // namespace
}  // namespace nereus
