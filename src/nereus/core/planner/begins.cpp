#include "nereus/core/planner/begins.h"

#include <algorithm>

#include "nereus/core/cost/shape.h"

namespace nereus {

Begins::Begins(const DeviceLine& line, const Cluster& cluster, const PlannerOptions& options)
    : places_{0}, regular_(line.regular(cluster)) {
  if (!options.side_by_side) return;
  every_ = line.size() <= options.every_begin;
  const int step = every_ ? 1 : static_cast<int>(ceil_div(line.size(), options.places));
  places_ = line.positions(step);
  host_by_host_ = step >= line.largest_host();
}

size_t Begins::at_or_after(int position) const {
  return size_t(std::ranges::lower_bound(places_, position) - places_.begin());
}

}  // namespace nereus
