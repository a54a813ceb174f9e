#include "nereus/cost/collectives.h"

namespace nereus {

LinkSpec slowest_link(const Cluster& cluster, std::span<const DeviceId> devices) {
  if (devices.size() < 2) return cluster.local;
  LinkSpec slowest = link(cluster, devices.back(), devices.front());
  for (size_t i = 0; i + 1 < devices.size(); ++i) {
    const LinkSpec& next = link(cluster, devices[i], devices[i + 1]);
    if (next.bandwidth < slowest.bandwidth) slowest = next;
  }
  return slowest;
}

Seconds all_reduce_time(double bytes, int ranks, const LinkSpec& link) {
  return all_gather_time(bytes, ranks, link) * 2;
}

Seconds all_gather_time(double bytes, int ranks, const LinkSpec& link) {
  const double steps = ranks - 1;
  return Seconds(steps / ranks * bytes / link.bandwidth) + link.latency * steps;
}

Seconds send_time(double bytes, const LinkSpec& link) {
  return Seconds(bytes / link.bandwidth) + link.latency;
}

}  // namespace nereus
