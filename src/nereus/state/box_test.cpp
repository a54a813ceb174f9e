#include "nereus/state/box.h"

#include <gtest/gtest.h>

#include "nereus/base/error.h"

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

}  // namespace
}  // namespace nereus
