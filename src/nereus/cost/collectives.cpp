#include "nereus/cost/collectives.h"

#include <algorithm>

namespace nereus {
namespace {

Operations steps(double bytes, double hops, const LinkUse& link, OpClass near, OpClass far) {
  Operations time(link.far ? far : near, bytes / link.spec.bandwidth);
  time[link.far ? OpClass::kFarHop : OpClass::kHop] = hops * link.spec.latency.count();
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
  LinkUse slowest{cluster.between_hosts, true};
  slowest.spec.bandwidth = cluster.in_host.bandwidth;
  for (const auto& [host, count] : members) {
    const double nic = cluster.hosts.at(static_cast<size_t>(host)).nic_bandwidth;
    const double own = count * cluster.between_hosts.bandwidth;
    slowest.spec.bandwidth = std::min({slowest.spec.bandwidth, own, nic > 0 ? nic / rings : own});
  }
  return slowest;
}

Operations all_reduce(double bytes, int ranks, const LinkUse& link) {
  const double hops = 2.0 * (ranks - 1);
  return steps(hops / ranks * bytes, hops, link, OpClass::kAllReduce, OpClass::kFarAllReduce);
}

Operations all_gather(double bytes, int ranks, const LinkUse& link) {
  const double hops = ranks - 1.0;
  return steps(hops / ranks * bytes, hops, link, OpClass::kAllGather, OpClass::kFarAllGather);
}

Operations send(double bytes, const LinkUse& link) {
  return steps(bytes, 1, link, OpClass::kSend, OpClass::kFarSend);
}

}  // namespace nereus
