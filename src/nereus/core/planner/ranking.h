// The best plans so far of a search, one of each Problem::kind.
#pragma once

#include <array>
#include <vector>

#include "nereus/core/planner/options.h"

namespace nereus {

class Ranking {
 public:
  using Kind = decltype(Problem::kind({}, {}));

  // So many runners-up, at most so much slower than the best.
  Ranking(int keep, double tolerance) : keep_(keep), tolerance_(tolerance) {}

  // A plan that is certainly slower is of no use.
  bool useless(Seconds at_least) const { return at_least > limit_; }
  // Nor is one that is slower than another of its kind.
  bool useless(Seconds at_least, const Kind& kind) const;
  void add(const Problem& problem, Found found);
  // Best first.
  std::vector<Found> take();

 private:
  struct Ranked {
    // Nanoseconds, stages that differ from the current plan, devices per unit.
    std::array<int64_t, 3> key;
    Kind kind;
    Found found;
  };
  static bool before(const Ranked& a, const Ranked& b) {
    return a.key != b.key ? a.key < b.key : a.found.arrangement < b.found.arrangement;
  }
  // By how many the list is too long; negative: there is room.
  int full() const { return static_cast<int>(ranked_.size()) - (keep_ + 1); }

  int keep_;
  double tolerance_;
  std::vector<Ranked> ranked_;
  Seconds limit_ = kNever;
};

}  // namespace nereus
