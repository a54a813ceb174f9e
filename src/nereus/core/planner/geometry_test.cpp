#include "nereus/core/planner/geometry.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace nereus {
namespace {

// Whether some begins within the line make exactly those meet that share, found by trying all.
bool found_by_trying(const Sharing& sharing, StageSet same_begin, const std::vector<int>& lengths,
                     int line) {
  std::vector<int> begins(sharing.size());
  const auto suits = [&] {
    int same = -1;
    for (size_t a = 0; a < begins.size(); ++a) {
      if (begins[a] + lengths[a] > line) return false;
      if ((same_begin >> a & 1U) != 0) {
        if (same >= 0 && begins[a] != same) return false;
        same = begins[a];
      }
      for (size_t b = 0; b < a; ++b) {
        const bool meet = std::max(begins[a], begins[b]) <
                          std::min(begins[a] + lengths[a], begins[b] + lengths[b]);
        if (meet != ((sharing[a] >> b & 1U) != 0)) return false;
      }
    }
    return true;
  };
  while (true) {
    if (suits()) return true;
    size_t i = 0;
    while (i < begins.size() && ++begins[i] == line) begins[i++] = 0;
    if (i == begins.size()) return false;
  }
}

TEST(Geometry, SaysWhatTryingAllBeginsSays) {
  std::mt19937_64 random(7);
  int possible = 0, impossible = 0;
  for (const Sharing& sharing : all_sharings(4, false)) {
    for (int trial = 0; trial < 20; ++trial) {
      const int line = 3 + int(random() % 5);
      std::vector<int> lengths(4);
      for (int& length : lengths) length = 1 + int(random() % uint64_t(line));
      const bool tied = trial % 2 == 0 && (sharing[0] >> 1U & 1U) != 0;
      const StageSet same_begin = tied ? 0b11 : 0;
      const bool expected = found_by_trying(sharing, same_begin, lengths, line);
      EXPECT_EQ(Geometry(sharing, same_begin).possible(lengths, lengths, line), expected);
      ++(expected ? possible : impossible);
    }
  }
  EXPECT_GT(possible, 100);
  EXPECT_GT(impossible, 100);
}

TEST(Geometry, LengthsThatAreOpenMayBeAny) {
  const Sharing chain = {0b011, 0b111, 0b110};  // the second meets both others, which are apart
  const Geometry geometry(chain, 0);
  const std::array<int, 3> least = {4, 1, 4};
  EXPECT_TRUE(geometry.possible(least, std::array{4, 2, 4}, 8));
  EXPECT_FALSE(geometry.possible(least, std::array{4, 1, 4}, 8));
  EXPECT_FALSE(geometry.possible(least, std::array{4, 8, 4}, 7));
}

}  // namespace
}  // namespace nereus
