// Exact branch and bound over one placement per model-stage and where each begins.
#pragma once

#include <limits>
#include <vector>

#include "nereus/core/planner/problem.h"

namespace nereus {

// More than any device has.
inline constexpr Bytes kUnlimited(std::numeric_limits<int64_t>::max() / 4);

struct SearchOptions {
  Bytes usable;          // peak memory is at most this on each device
  int keep = 0;          // runners-up
  double tolerance = 0;  // they are at most this much slower than the best
};

// The fastest plans that fit, best first, one of each Problem::kind. Equally fast: those with fewer
// changes from the current plan first, then those with fewer devices per unit. Empty: nothing fits.
std::vector<Found> search(Problem& problem, const SearchOptions& options);

// With the planner's number of runners-up and tolerance.
SearchOptions search_options(const PlannerOptions& options, Bytes usable);

// Best and alternatives of a problem whose candidates are there already; errors as above.
Expected<PlanChoice> choose_plan(Problem& problem, const PlannerOptions& options);

}  // namespace nereus
