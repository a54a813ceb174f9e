#include "nereus/core/cost/collectives.h"

#include <algorithm>
#include <cmath>

namespace nereus {
namespace {

// Of the filling of a pipeline that starts empty, what public measurements show (bench/cost_fit).
constexpr double kFilling = 1.0 / 3;

// `rounds` times round `ranks`, all but one hop each.
Operations ring(double bytes, int ranks, double rounds, const LinkUse& link, OpClass near,
                OpClass far) {
  if (ranks < 2) return {};
  const double hops = rounds * (ranks - 1);
  const double far_hops = link.hosts > 0 ? std::min(hops, rounds * (link.hosts - 1)) : hops;
  const double passing = hops / ranks * bytes / link.spec.bandwidth;
  const double slow = far_hops * link.spec.latency.count();
  const double quick = (hops - far_hops) * link.near_latency.count();
  Operations time(link.far ? far : near, passing);
  time[link.far ? OpClass::kFarHop : OpClass::kHop] = slow;
  time[OpClass::kHop] += quick;
  time[link.far ? OpClass::kFarRamp : OpClass::kRamp] =
      kFilling * 2 * std::sqrt((hops - 1) / hops * (slow + quick) * passing);
  return time;
}

}  // namespace

LinkUse far_link(const Cluster& cluster, int host, int streams) {
  LinkUse use{cluster.between_hosts, true};
  const double nic = cluster.hosts.at(static_cast<size_t>(host)).nic_bandwidth;
  if (nic > 0) use.spec.bandwidth = std::min(use.spec.bandwidth, nic / streams);
  return use;
}

LinkUse link_between(const Cluster& cluster, DeviceId from, DeviceId to, int streams) {
  if (from.host == to.host) return {link(cluster, from, to)};
  const LinkUse sender = far_link(cluster, from.host, streams);
  const LinkUse receiver = far_link(cluster, to.host, streams);
  return sender.spec.bandwidth < receiver.spec.bandwidth ? sender : receiver;
}

HostCounts count_by_host(std::span<const DeviceId> devices) {
  HostCounts counts;
  for (DeviceId device : devices) {
    if (counts.empty() || counts.back().first != device.host) counts.emplace_back(device.host, 0);
    ++counts.back().second;
  }
  std::ranges::sort(counts);
  size_t last = 0;
  for (size_t i = 1; i < counts.size(); ++i) {
    if (counts[i].first == counts[last].first) {
      counts[last].second += counts[i].second;
    } else {
      counts[++last] = counts[i];
    }
  }
  if (!counts.empty()) counts.resize(last + 1);
  return counts;
}

LinkUse ring_link(const Cluster& cluster, const HostCounts& members, int rings) {
  if (members.empty()) return {cluster.local};
  if (members.size() == 1) return {members[0].second < 2 ? cluster.local : cluster.in_host};
  LinkUse slowest{cluster.between_hosts, true, static_cast<int>(members.size()),
                  cluster.in_host.latency};
  slowest.spec.bandwidth = cluster.in_host.bandwidth;
  for (const auto& [host, count] : members) {
    const double nic = cluster.hosts.at(static_cast<size_t>(host)).nic_bandwidth;
    const double own = count * cluster.between_hosts.bandwidth;
    slowest.spec.bandwidth = std::min({slowest.spec.bandwidth, own, nic > 0 ? nic / rings : own});
  }
  return slowest;
}

Operations all_reduce(double bytes, int ranks, const LinkUse& link) {
  return ring(bytes, ranks, 2, link, OpClass::kAllReduce, OpClass::kFarAllReduce);
}

Operations all_gather(double bytes, int ranks, const LinkUse& link) {
  return ring(bytes, ranks, 1, link, OpClass::kAllGather, OpClass::kFarAllGather);
}

Operations send(double bytes, const LinkUse& link) {
  Operations time(link.far ? OpClass::kFarSend : OpClass::kSend, bytes / link.spec.bandwidth);
  time[link.far ? OpClass::kFarHop : OpClass::kHop] = link.spec.latency.count();
  return time;
}

}  // namespace nereus
