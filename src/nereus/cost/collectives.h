// Ideal times of collectives on the links of a cluster.
#pragma once

#include <span>

#include "nereus/cluster/cluster.h"

namespace nereus {

// The slowest link between neighbours of a ring over `devices`, whose collectives are at least that
// slow. cluster.local for fewer than two devices.
LinkSpec slowest_link(const Cluster& cluster, std::span<const DeviceId> devices);

// Ring algorithms over n ranks, S = bytes of the whole buffer on each rank:
// all-reduce 2(n-1)/n · S / bandwidth + 2(n-1) · latency; all-gather (n-1)/n · S / bandwidth +
// (n-1) · latency. Zero for one rank.
Seconds all_reduce_time(double bytes, int ranks, const LinkSpec& link);
Seconds all_gather_time(double bytes, int ranks, const LinkSpec& link);
Seconds send_time(double bytes, const LinkSpec& link);

}  // namespace nereus
