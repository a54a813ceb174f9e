#include "nereus/core/planner/sharing.h"

#include <algorithm>
#include <numeric>

namespace nereus {
namespace {

bool shares(const Sharing& sharing, size_t a, size_t b) { return (sharing[a] >> b & 1U) != 0; }

bool is_clique(const Sharing& sharing, StageSet set) {
  for (size_t stage = 0; stage < sharing.size(); ++stage) {
    if ((set >> stage & 1U) != 0 && (set & ~sharing[stage]) != 0) return false;
  }
  return true;
}

bool is_of_intervals(const Sharing& sharing) {
  std::vector<size_t> order(sharing.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    if (is_order_of_intervals(sharing, order)) return true;
  } while (std::ranges::next_permutation(order).found);
  return false;
}

}  // namespace

Sharing together(size_t stages) { return Sharing(stages, (StageSet{1} << stages) - 1); }

Sharing apart(const Sharing& sharing) {
  Sharing apart;
  for (size_t stage = 0; stage < sharing.size(); ++stage) {
    const StageSet all = (StageSet{1} << sharing.size()) - 1;
    apart.push_back((all & ~sharing[stage]) | StageSet{1} << stage);
  }
  return apart;
}

std::vector<Sharing> all_sharings(size_t stages, bool gaps) {
  NEREUS_CHECK(stages <= kMostSideBySide, std::to_string(stages) +
                                              " model-stages side by side: at most " +
                                              std::to_string(kMostSideBySide) + " can be searched");
  const size_t pairs = stages * (stages - 1) / 2;
  std::vector<Sharing> all;
  for (uint64_t absent = 0; absent < uint64_t{1} << pairs; ++absent) {
    Sharing sharing = together(stages);
    size_t pair = 0;
    for (size_t a = 0; a < stages; ++a) {
      for (size_t b = a + 1; b < stages; ++b, ++pair) {
        if ((absent >> pair & 1U) == 0) continue;
        sharing[a] &= ~(StageSet{1} << b);
        sharing[b] &= ~(StageSet{1} << a);
      }
    }
    if (gaps || is_of_intervals(sharing)) all.push_back(std::move(sharing));
  }
  return all;
}

bool is_order_of_intervals(const Sharing& sharing, const std::vector<size_t>& by_begin) {
  for (size_t a = 0; a < by_begin.size(); ++a) {
    bool over = false;
    for (size_t b = a + 1; b < by_begin.size(); ++b) {
      const bool meets = shares(sharing, by_begin[a], by_begin[b]);
      if (meets && over) return false;
      over = over || !meets;
    }
  }
  return true;
}

std::vector<StageSet> cliques(const Sharing& sharing) {
  std::vector<StageSet> largest;
  for (StageSet set = (StageSet{1} << sharing.size()) - 1; set > 0; --set) {
    const auto holds_it = [&](StageSet other) { return (set & ~other) == 0; };
    if (is_clique(sharing, set) && std::ranges::none_of(largest, holds_it)) {
      largest.push_back(set);
    }
  }
  return largest;
}

}  // namespace nereus
