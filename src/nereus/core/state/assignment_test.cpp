#include "nereus/core/state/assignment.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

int64_t sum_of(const std::vector<std::vector<int64_t>>& worth, const std::vector<int>& column_of) {
  int64_t sum = 0;
  for (size_t row = 0; row < worth.size(); ++row) sum += worth[row][column_of[row]];
  return sum;
}

TEST(BestAssignment, IsNotGreedy) {
  EXPECT_THAT(best_assignment({{9, 8}, {8, 1}}), ElementsAre(1, 0));
  EXPECT_THAT(best_assignment({{1, 5, 2}}), ElementsAre(1));
  EXPECT_THAT(best_assignment({}), IsEmpty());
  EXPECT_THROW(best_assignment({{1}, {2}}), Error);
}

TEST(BestAssignment, EqualsTheBestPermutation) {
  EXPECT_TRUE(rc::check([] {
    const int columns = *rc::gen::inRange(1, 7);
    const int rows = *rc::gen::inRange(1, columns + 1);
    std::vector<std::vector<int64_t>> worth(rows);
    for (auto& row : worth) {
      for (int c = 0; c < columns; ++c) row.push_back(*rc::gen::inRange(-9, 50));
    }
    std::vector<int> permutation(columns);
    std::iota(permutation.begin(), permutation.end(), 0);
    int64_t best = sum_of(worth, permutation);
    while (std::ranges::next_permutation(permutation).found) {
      best = std::max(best, sum_of(worth, permutation));
    }
    const std::vector<int> found = best_assignment(worth);
    RC_ASSERT(sum_of(worth, found) == best);
    std::vector<int> used = found;
    std::ranges::sort(used);
    RC_ASSERT(std::ranges::adjacent_find(used) == used.end());
  }));
}

}  // namespace
}  // namespace nereus
