#include "nereus/core/state/box.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

TEST(Box, KnowsItsSize) {
  const Box box{{1, 2}, {4, 8}};
  EXPECT_EQ(volume(box), 18);
  EXPECT_EQ(extent(box), (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(to_string(box), "[1:4, 2:8]");
  EXPECT_EQ(whole(std::vector<int64_t>{5, 7}), (Box{{0, 0}, {5, 7}}));
}

TEST(Box, IntersectsOnlyWhereBothAre) {
  const Box a{{0, 0}, {4, 4}};
  EXPECT_EQ(intersect(a, {{2, 1}, {6, 3}}), (Box{{2, 1}, {4, 3}}));
  EXPECT_EQ(intersect(a, {{4, 0}, {6, 4}}), std::nullopt);  // touching is not common
  EXPECT_TRUE(contains(a, {{1, 1}, {4, 4}}));
  EXPECT_FALSE(contains(a, {{1, 1}, {4, 5}}));
  EXPECT_FALSE(contains(a, {{5, 5}, {6, 6}}));
}

TEST(Box, ShiftsIntoAnOuterBox) {
  EXPECT_EQ(relative_to({{5, 2}, {6, 4}}, {{4, 2}, {8, 4}}), (Box{{1, 0}, {2, 2}}));
  EXPECT_THROW(relative_to({{3, 2}, {6, 4}}, {{4, 2}, {8, 4}}), Error);
}

Box random_box(const std::vector<int64_t>& shape) {
  Box box = whole(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    box.begin[d] = *rc::gen::inRange<int64_t>(0, shape[d]);
    box.end[d] = *rc::gen::inRange<int64_t>(box.begin[d] + 1, shape[d] + 1);
  }
  return box;
}

TEST(Box, SubtractLeavesDisjointPiecesOfTheRest) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<int64_t> shape(*rc::gen::inRange<size_t>(1, 4), 5);
    const Box box = random_box(shape), other = random_box(shape);
    const auto part = intersect(box, other);
    RC_ASSERT(common_volume(box, other) == (part ? volume(*part) : 0));
    if (!part) return;
    std::vector<Box> pieces = subtract(box, *part);
    pieces.push_back(*part);
    int64_t sum = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      RC_ASSERT(contains(box, pieces[i]));
      sum += volume(pieces[i]);
      for (size_t k = 0; k < i; ++k) RC_ASSERT(!intersect(pieces[i], pieces[k]));
    }
    RC_ASSERT(sum == volume(box));
  }));
}

TEST(Box, SubtractCutsLongRuns) {
  EXPECT_EQ(subtract({{0, 0}, {4, 4}}, {{1, 2}, {3, 4}}),
            (std::vector<Box>{{{0, 0}, {1, 4}}, {{3, 0}, {4, 4}}, {{1, 0}, {3, 2}}}));
}

}  // namespace
}  // namespace nereus
