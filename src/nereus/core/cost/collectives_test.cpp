#include "nereus/core/cost/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nereus/core/cluster/cluster.h"
#include "nereus/core/cost/shape.h"

namespace nereus {
namespace {

TEST(Collectives, RingFormulas) {
  const LinkSpec link{.bandwidth = 100, .latency = Seconds(1)};
  const Operations reduced = all_reduce(400, 4, {link}), gathered = all_gather(400, 4, {link});
  EXPECT_DOUBLE_EQ(reduced[OpClass::kAllReduce], 6);
  EXPECT_DOUBLE_EQ(reduced[OpClass::kHop], 6);
  EXPECT_DOUBLE_EQ(reduced[OpClass::kRamp], 2.0 / 3 * std::sqrt(5 * 6));
  EXPECT_DOUBLE_EQ(reduced.sum(), 12 + 2.0 / 3 * std::sqrt(30));
  EXPECT_DOUBLE_EQ(gathered.sum(), 3 + 3 + 2.0 / 3 * std::sqrt(2 * 3));
  EXPECT_DOUBLE_EQ(all_reduce(400, 1, {link}).sum(), 0);
  EXPECT_DOUBLE_EQ(send(400, {link}).sum(), 5);
  EXPECT_DOUBLE_EQ(all_reduce(400, 4, {link, true})[OpClass::kFarAllReduce], 6);
  EXPECT_DOUBLE_EQ(all_reduce(400, 4, {link, true})[OpClass::kFarHop], 6);
}

TEST(Collectives, ARingOverTwoHostsHasFewHopsBetweenThem) {
  const Cluster cluster = named_cluster("a100x4", 2);
  const std::vector<DeviceId> devices = all_devices(cluster).devices();
  const Operations ring = all_reduce(1e6, 8, ring_link(cluster, count_by_host(devices)));
  EXPECT_DOUBLE_EQ(ring[OpClass::kFarHop], 2 * cluster.between_hosts.latency.count());
  EXPECT_DOUBLE_EQ(ring[OpClass::kHop], 12 * cluster.in_host.latency.count());
}

// Many chunks cost a hop each, few chunks leave hops idle: the best size of chunks takes what the
// bytes, the hops and three times the filling take together.
TEST(Collectives, FillingIsAThirdOfThatOfTheBestChunks) {
  const LinkSpec link{.bandwidth = 100, .latency = Seconds(0.01)};
  const double bytes = 4000, hops = 6, passing = 1.5 * bytes / 100;
  double best = 1e9;
  for (int chunks = 1; chunks < 1000; ++chunks) {
    best = std::min(best, (hops - 1 + chunks) * (0.01 + passing / chunks));
  }
  const Operations ring = all_reduce(bytes, 4, {link});
  EXPECT_NEAR((ring.sum() + 2 * ring[OpClass::kRamp]) / best, 1, 1e-3);
}

TEST(Collectives, DevicesOfAHostShareItsNetwork) {
  const Cluster cluster = named_cluster("a100x4", 2);  // four NICs of 12.5 GB/s for four devices
  const double alone = link_between(cluster, {0, 0}, {1, 0}).spec.bandwidth;
  EXPECT_DOUBLE_EQ(alone, cluster.between_hosts.bandwidth);
  EXPECT_DOUBLE_EQ(link_between(cluster, {0, 0}, {1, 0}, 4).spec.bandwidth, alone);
  EXPECT_DOUBLE_EQ(link_between(cluster, {0, 0}, {1, 0}, 8).spec.bandwidth, alone / 2);
  EXPECT_FALSE(link_between(cluster, {0, 0}, {0, 1}, 8).far);
  // Two members of a ring on each host use two of the NICs, but two rings of four share four.
  const std::vector<DeviceId> ring = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_TRUE(ring_link(cluster, count_by_host(ring)).far);
  EXPECT_DOUBLE_EQ(ring_link(cluster, count_by_host(ring)).spec.bandwidth, 2 * alone);
  EXPECT_DOUBLE_EQ(ring_link(cluster, count_by_host(ring), 4).spec.bandwidth, alone);
}

}  // namespace
}  // namespace nereus
