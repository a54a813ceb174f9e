// The best plans so far of a search, one of each Problem::kind.
#pragma once

#include <compare>
#include <limits>
#include <vector>

#include "nereus/core/planner/problem.h"

namespace nereus {

// In the order of Problem::stages().
inline constexpr size_t kTraining = 0;
inline constexpr size_t kGeneration = 1;
inline constexpr Seconds kNever(std::numeric_limits<double>::infinity());

class Ranking {
 public:
  using Kind = decltype(Problem::kind({}, {}));

  // So many runners-up, at most so much slower than the best.
  Ranking(int keep, double tolerance) : keep_(keep), tolerance_(tolerance) {}

  // A plan that is certainly slower is of no use.
  bool useless(Seconds at_least) const { return at_least > limit_; }
  // Of equally fast plans that with fewer changes from the current one is better, then that with
  // fewer devices per unit, then the first.
  struct Tie {
    int64_t changes = 0;
    int64_t devices = 0;
    auto operator<=>(const Tie&) const = default;
  };
  // Nor is a plan of use that is certainly no better than another of its kind.
  bool useless(Seconds at_least, const Kind& kind, Tie tie_at_least) const;
  void add(const Problem& problem, Found found);
  // Best first.
  std::vector<Found> take();

 private:
  struct Ranked {
    int64_t nanoseconds = 0;
    Tie tie;
    Kind kind;
    Found found;
  };
  static bool before(const Ranked& a, const Ranked& b) {
    return a.nanoseconds != b.nanoseconds ? a.nanoseconds < b.nanoseconds : a.tie < b.tie;
  }
  // By how many the list is too long; negative: there is room.
  int full() const { return static_cast<int>(ranked_.size()) - (keep_ + 1); }

  int keep_;
  double tolerance_;
  std::vector<Ranked> ranked_;
  Seconds limit_ = kNever;
};

}  // namespace nereus
