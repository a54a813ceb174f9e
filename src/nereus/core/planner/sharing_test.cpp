#include "nereus/core/planner/sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereus {
namespace {

using testing::ElementsAre;

TEST(Sharing, IntervalsOnALineHaveTheNumberOfGraphsThatIsKnown) {
  // Of three nodes all graphs are interval graphs, of four all but the three rings.
  EXPECT_EQ(all_sharings(1, false).size(), 1);
  EXPECT_EQ(all_sharings(2, false).size(), 2);
  EXPECT_EQ(all_sharings(3, false).size(), 8);
  EXPECT_EQ(all_sharings(4, false).size(), 61);
  EXPECT_EQ(all_sharings(4, true).size(), 64);
  EXPECT_EQ(all_sharings(4, false).front(), together(4));
  EXPECT_THROW(all_sharings(7, false), Error);
}

TEST(Sharing, CliquesAreTheLargestSetsInWhichAllShare) {
  // 0 with 1 and 2 with 3, 1 with 2: intervals one behind the other.
  const Sharing chain = {0b0011, 0b0111, 0b1110, 0b1100};
  EXPECT_THAT(cliques(chain), ElementsAre(0b1100, 0b0110, 0b0011));
  EXPECT_THAT(apart(chain), ElementsAre(0b1101, 0b1010, 0b0101, 0b1011));
  EXPECT_THAT(cliques(together(3)), ElementsAre(0b111));
  EXPECT_THAT(cliques(apart(together(3))), ElementsAre(0b100, 0b010, 0b001));
}

}  // namespace
}  // namespace nereus
