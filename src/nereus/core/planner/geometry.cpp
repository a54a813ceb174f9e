#include "nereus/core/planner/geometry.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>

namespace nereus {

Geometry::Geometry(const Sharing& sharing, StageSet same_begin)
    : sharing_(sharing), same_begin_(same_begin) {
  std::set<Order> orders;
  std::vector<size_t> by_begin(sharing.size());
  std::iota(by_begin.begin(), by_begin.end(), 0);
  do {
    if (!is_order_of_intervals(sharing, by_begin)) continue;
    Order order(sharing.size());
    StageSet before = 0;
    for (const size_t stage : by_begin) {
      order[stage] = before & ~sharing[stage];
      before |= StageSet{1} << stage;
    }
    orders.insert(std::move(order));
  } while (std::ranges::next_permutation(by_begin).found);
  orders_.assign(orders.begin(), orders.end());
}

bool Geometry::possible(std::span<const int> least, std::span<const int> most, int line) const {
  return std::ranges::any_of(
      orders_, [&](const Order& order) { return possible(order, least, most, line); });
}

// Pushes begins to the right until all conditions hold: a system of differences, whose least
// solution is found or that has none within the line.
bool Geometry::possible(const Order& order, std::span<const int> least, std::span<const int> most,
                        int line) const {
  std::array<int, Timeline::kMostStages> begins{};
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < order.size(); ++stage) {
      int begin = begins[stage];
      for (StageSet rest = order[stage]; rest != 0; rest &= rest - 1) {
        const auto other = size_t(std::countr_zero(rest));
        begin = std::max(begin, begins[other] + least[other]);
      }
      for (StageSet rest = sharing_[stage]; rest != 0; rest &= rest - 1) {
        begin = std::max(begin, begins[size_t(std::countr_zero(rest))] - most[stage] + 1);
      }
      if ((same_begin_ >> stage & 1U) != 0) {
        for (StageSet rest = same_begin_; rest != 0; rest &= rest - 1) {
          begin = std::max(begin, begins[size_t(std::countr_zero(rest))]);
        }
      }
      if (begin + least[stage] > line) return false;
      moved = moved || begin != begins[stage];
      begins[stage] = begin;
    }
  }
  return true;
}

}  // namespace nereus
