#include "nereus/runtime/live/micro_batches.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "nereus/runtime/rl/testing.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
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

}  // namespace
}  // namespace nereus
