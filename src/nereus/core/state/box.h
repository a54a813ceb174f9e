// Hyper-rectangles of a tensor's global shape. All resharding is their intersection.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace nereus {

// Half-open: begin[d] <= x[d] < end[d] in every dimension d. Never empty.
struct Box {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  bool operator==(const Box&) const = default;
};

Box whole(std::span<const int64_t> shape);
int64_t volume(const Box& box);
std::vector<int64_t> extent(const Box& box);  // end - begin
// The common part, or nothing.
std::optional<Box> intersect(const Box& a, const Box& b);
// The rest of `box` without `part`, in disjoint boxes, cut along the first dimensions first so that
// they are long runs in memory. Requires contains(box, part).
std::vector<Box> subtract(const Box& box, const Box& part);
int64_t common_volume(const Box& a, const Box& b);  // of their intersection, or 0
bool contains(const Box& outer, const Box& inner);
// `inner` in coordinates whose origin is outer.begin. Requires contains(outer, inner).
Box relative_to(const Box& inner, const Box& outer);
std::string to_string(const Box& box);  // "[0:4, 8:16]"

}  // namespace nereus
