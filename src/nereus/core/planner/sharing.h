// Which model-stages of a plan share devices, as a graph.
#pragma once

#include <vector>

#include "nereus/core/planner/timeline.h"

namespace nereus {

// By model-stage those that share a device with it, itself included.
using Sharing = std::vector<StageSet>;

// All share with all.
Sharing together(size_t stages);
// Who does not share, and oneself.
Sharing apart(const Sharing& sharing);
// All that groups on a line may have in common, `together` first: intervals (interval graphs), or,
// where groups leave out devices that others take, anything. Throws Error(kInternal) for more than
// kMostSideBySide stages: there are too many.
inline constexpr size_t kMostSideBySide = 6;
std::vector<Sharing> all_sharings(size_t stages, bool gaps);

// Whether intervals that begin in this order can share so: whoever shares with a later one is still
// there when those between begin.
bool is_order_of_intervals(const Sharing& sharing, const std::vector<size_t>& by_begin);

// The largest sets of stages of which all share with all others.
std::vector<StageSet> cliques(const Sharing& sharing);

}  // namespace nereus
