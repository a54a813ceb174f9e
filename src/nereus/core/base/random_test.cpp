#include "nereus/core/base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nereus {
namespace {

using ::testing::ElementsAre;

// The known-answer vectors of Random123 (kat_vectors, philox4x32 10).
TEST(Random, PhiloxMatchesRandom123) {
  EXPECT_THAT(philox({0, 0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox({~0ull, ~0ull, ~0ull}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  // Digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  EXPECT_THAT(philox({0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Random, UniformIsInRangeWithTheRightMoments) {
  constexpr int kDraws = 20000;
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double value = uniform({.seed = 3, .stream = i / 100, .position = i % 100});
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kDraws, 1.0 / 2, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.01);
}

TEST(Random, PermutationHoldsEachNumberOnceAndDependsOnSeedAndStream) {
  const auto order = permutation(100, 1, 2);
  EXPECT_EQ(order, permutation(100, 1, 2));
  EXPECT_NE(order, permutation(100, 1, 3));
  EXPECT_NE(order, permutation(100, 2, 2));
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  EXPECT_THAT(permutation(0, 1, 2), ElementsAre());
  EXPECT_THAT(permutation(1, 1, 2), ElementsAre(0));
}

TEST(Random, AllSixPermutationsOfThreeAreAboutEquallyLikely) {
  std::vector<int> count(27);
  for (uint64_t stream = 0; stream < 6000; ++stream) {
    const auto order = permutation(3, 9, stream);
    ++count[static_cast<size_t>(order[0] * 9 + order[1] * 3 + order[2])];
  }
  const auto seen = std::count_if(count.begin(), count.end(), [](int n) { return n > 0; });
  EXPECT_EQ(seen, 6);
  EXPECT_THAT(
      count, testing::Each(testing::AnyOf(0, testing::AllOf(testing::Gt(880), testing::Lt(1120)))));
}

}  // namespace
}  // namespace nereus
