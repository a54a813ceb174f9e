#include "nereus/core/state/box.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

Box whole(std::span<const int64_t> shape) {
  return {std::vector<int64_t>(shape.size(), 0), {shape.begin(), shape.end()}};
}

int64_t volume(const Box& box) {
  int64_t product = 1;
  for (size_t d = 0; d < box.begin.size(); ++d) product *= box.end[d] - box.begin[d];
  return product;
}

std::vector<int64_t> extent(const Box& box) {
  std::vector<int64_t> sizes(box.begin.size());
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = box.end[d] - box.begin[d];
  return sizes;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  NEREUS_CHECK(a.begin.size() == b.begin.size(), to_string(a) + " and " + to_string(b));
  Box common = a;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    common.begin[d] = std::max(a.begin[d], b.begin[d]);
    common.end[d] = std::min(a.end[d], b.end[d]);
    if (common.begin[d] >= common.end[d]) return std::nullopt;
  }
  return common;
}

int64_t common_volume(const Box& a, const Box& b) {
  int64_t product = 1;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    const int64_t begin = std::max(a.begin[d], b.begin[d]);
    product *= std::max<int64_t>(0, std::min(a.end[d], b.end[d]) - begin);
  }
  return product;
}

std::vector<Box> subtract(const Box& box, const Box& part) {
  NEREUS_CHECK(contains(box, part), to_string(part) + " is not inside " + to_string(box));
  std::vector<Box> rest;
  Box middle = box;
  for (size_t d = 0; d < box.begin.size(); ++d) {
    Box before = middle, after = middle;
    before.end[d] = middle.begin[d] = part.begin[d];
    after.begin[d] = middle.end[d] = part.end[d];
    for (Box& slab : {std::ref(before), std::ref(after)}) {
      if (slab.begin[d] < slab.end[d]) rest.push_back(std::move(slab));
    }
  }
  return rest;
}

bool contains(const Box& outer, const Box& inner) { return intersect(outer, inner) == inner; }

Box relative_to(const Box& inner, const Box& outer) {
  NEREUS_CHECK(contains(outer, inner), to_string(inner) + " is not inside " + to_string(outer));
  Box shifted = inner;
  for (size_t d = 0; d < outer.begin.size(); ++d) {
    shifted.begin[d] -= outer.begin[d];
    shifted.end[d] -= outer.begin[d];
  }
  return shifted;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.begin.size(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(box.begin[d]) + ":" + std::to_string(box.end[d]);
  }
  return text + "]";
}

}  // namespace nereus
