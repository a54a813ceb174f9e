// Ideal times of collectives on the links of a cluster.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "nereus/core/cluster/cluster.h"
#include "nereus/core/cost/operations.h"

namespace nereus {

// A link as a group of devices finds it.
struct LinkUse {
  LinkSpec spec;
  bool far = false;           // between hosts
  int hosts = 0;              // of a ring: its other hops stay within a host; 0: every hop is alike
  Seconds near_latency = {};  // of those
};

// What each of `streams` at once gets of a host's network.
LinkUse far_link(const Cluster& cluster, int host, int streams);
// From one device to another. Between hosts `streams` share the NIC of a host.
LinkUse link_between(const Cluster& cluster, DeviceId from, DeviceId to, int streams = 1);
// How many of the devices each host has, by host.
using HostCounts = std::vector<std::pair<int, int>>;
HostCounts count_by_host(std::span<const DeviceId> devices);
// What a ring over devices gets. Between hosts the members on one host use their ways through its
// network side by side, and `rings` share it. cluster.local for fewer than two devices.
LinkUse ring_link(const Cluster& cluster, const HostCounts& members, int rings = 1);

// Ring algorithms over n ranks, S = bytes of the whole buffer on each rank:
// all-reduce 2(n-1)/n · S / bandwidth + 2(n-1) · latency; all-gather (n-1)/n · S / bandwidth +
// (n-1) · latency, of which those between hosts are as many as a way round the hosts has (NCCL's
// model, src/graph/tuning.cc). A ring passes its bytes on in chunks: k hops of latency α that the
// best size of chunks fills cost at most 2 √((k-1) α · S / bandwidth) besides, in practice a third.
// Zero for one rank. Bandwidth, latency and filling count as operations of their own.
Operations all_reduce(double bytes, int ranks, const LinkUse& link);
Operations all_gather(double bytes, int ranks, const LinkUse& link);
Operations send(double bytes, const LinkUse& link);

}  // namespace nereus
