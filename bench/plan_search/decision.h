// The whole of what a change of plan takes to decide, of which the search is one part.
#pragma once

#include <functional>

#include "nereus/core/planner/planner.h"

namespace nereus::bench {

// What the work takes of this thread's CPU: other work on the machine does not count.
Seconds cpu_time(const std::function<void()>& work);

// What Controller::observe() takes when a job on half of the devices learns that it gets all of
// them: forecasts, costing of all candidates, the search with its runners-up, placement on the
// devices that hold most of the state already, and compilation of the transition.
//
// {"first_s", "median_s", "parts": {"costing_s", "search_s", "placement_s", "compilation_s"},
// "reason", "primitives"}: the first call, and the median of `repeats` later ones, which keep
// nothing from it; the parts are medians of calls one by one. Throws Error(kInternal) if a decision
// is not to move to the best plan, or if two are not alike.
Json time_decision(const JobSpec& job, const Cluster& cluster, const PlannerOptions& planner,
                   int repeats);

}  // namespace nereus::bench
