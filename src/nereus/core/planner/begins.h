// Where on the line of devices a model-stage may begin: the space of placements that is searched.
//
// A model-stage takes a contiguous group: its units one after the other from some device on, with
// tensor groups that stay within a host (DeviceLine::footprint).
//
// Colocated: every group begins at the front of the line.
//
// Side by side, on pools of at most PlannerOptions::every_begin devices: every group begins at any
// device. The search is exact over all contiguous groups.
//
// Side by side, on larger pools: a group begins at the front or where others end that are set one
// after the other from the front, each at the first *place* at or after the end of the one before
// it at which it can begin. Places are the first device of each host and every so many farther on
// in it, of which PlannerOptions::places make the pool: at 1,024 GPUs in hosts of eight only the
// former, at 64 every second device. Tensor groups of tp begin at a multiple of tp in their host.
// And actor generation begins where actor training does or shares no device with it. The search is
// exact in this space, which is smaller than that of all contiguous groups.
//
// Why these: push all groups of a plan to the left, in order, until each begins at the front or
// where a group ends that it must not meet. Groups that were disjoint stay so, the others may only
// come apart, and a device holds state of model-stages that had a device in common before
// (intervals that meet in pairs meet in a point). So where devices are alike no plan becomes
// slower, and where all ranks hold equally much none needs more memory. What is left out, on real
// clusters: a begin that lets a pipeline cross hosts in better places; an overlap in which a device
// with little state of one model-stage holds much of another; generation amid training's devices,
// where it may find more of its weights, and a generation that meets training only to be apart from
// a third; and what is lost to rounding, less than a host or a 32nd of the pool for each group.
#pragma once

#include <vector>

#include "nereus/core/planner/placement.h"
#include "nereus/core/planner/planner.h"

namespace nereus {

class Begins {
 public:
  Begins(const DeviceLine& line, const Cluster& cluster, const PlannerOptions& options);

  // All that some model-stage may begin at: positions on the line, ascending; the first is 0.
  const std::vector<int>& places() const { return places_; }
  bool only_front() const { return places_.size() == 1; }
  bool every() const { return every_; }
  // A group on devices [begin, end) of the regular part costs what it costs whole hosts farther on.
  bool is_regular(int end) const { return end <= regular_.end; }
  int regular_host() const { return regular_.host; }
  // All places are beginnings of hosts, so groups without a device in common have no host in common
  // either.
  bool host_by_host() const { return host_by_host_; }
  // The index of the first place at or after a position; places().size() if there is none.
  size_t at_or_after(int position) const;

 private:
  std::vector<int> places_;
  DeviceLine::Regular regular_;
  bool every_ = false;
  bool host_by_host_ = false;
};

}  // namespace nereus
