// Whether groups of certain lengths can lie on a line so that certain ones meet.
#pragma once

#include <span>
#include <vector>

#include "nereus/core/planner/sharing.h"

namespace nereus {

// Intervals of which exactly those meet that share. A necessary condition only: they may begin
// anywhere.
class Geometry {
 public:
  // `same_begin`: stages that have to begin at the same place.
  Geometry(const Sharing& sharing, StageSet same_begin);

  // `least` and `most`: how long each is. True if they fit on a line of that length.
  bool possible(std::span<const int> least, std::span<const int> most, int line) const;

 private:
  // For each stage those that end before it begins.
  using Order = std::vector<StageSet>;
  bool possible(const Order& order, std::span<const int> least, std::span<const int> most,
                int line) const;

  Sharing sharing_;
  StageSet same_begin_;
  std::vector<Order> orders_;
};

}  // namespace nereus
