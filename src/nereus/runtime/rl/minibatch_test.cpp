#include "nereus/runtime/rl/minibatch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "nereus/core/base/error.h"
#include "nereus/runtime/rl/testing.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;

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
