#include "nereus/core/cluster/cluster.h"

#include "nereus/core/cluster/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace nereus {
namespace {

using ::testing::HasSubstr;

template <class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    return error.what();
  }
  return "nothing was thrown";
}

// What verify() says of a good cluster after a change.
template <class Change>
std::string refusal(Change change) {
  Cluster bad = cpu_cluster(2, Bytes(1 << 20), 2);
  change(bad);
  return message_of([&] { verify(bad); });
}

TEST(Cluster, DevicesAndLinks) {
  const Cluster cluster = named_cluster("a100x4", 2);
  EXPECT_EQ(all_devices(cluster).size(), 8);
  EXPECT_EQ(all_devices(cluster).devices().back(), (DeviceId{1, 3}));
  EXPECT_EQ(link(cluster, {0, 1}, {0, 1}), cluster.local);
  EXPECT_EQ(link(cluster, {0, 1}, {0, 2}), cluster.in_host);
  EXPECT_EQ(link(cluster, {0, 1}, {1, 1}), cluster.between_hosts);
  EXPECT_EQ(link(cluster, {0, 1}, {0, kHostMemory}), cluster.to_host);
  EXPECT_EQ(link(cluster, {0, kHostMemory}, {0, 1}), cluster.to_host);
  EXPECT_EQ(link(cluster, {0, kHostMemory}, {0, kHostMemory}), cluster.local);
  EXPECT_EQ(link(cluster, {0, kHostMemory}, {1, 1}), cluster.between_hosts);
}

TEST(Cluster, VirtualDevicesShareCores) {
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 20), 2);
  EXPECT_EQ(all_devices(cluster).size(), 4);
  EXPECT_EQ(cluster.device.memory, Bytes(1 << 20));
  EXPECT_EQ(speed_share(cluster.hosts[0], 1), 1);
  EXPECT_EQ(speed_share(cluster.hosts[0], 2), 1);
  EXPECT_EQ(speed_share(cluster.hosts[0], 4), 0.5);
}

TEST(Cluster, NamedClustersAreValidAndRoundTrip) {
  for (const char* name : {"h200x8", "a100x4", "mi250x8"}) {
    const Cluster cluster = named_cluster(name, 3);
    EXPECT_NO_THROW(verify(cluster)) << name;
    EXPECT_EQ(Json::parse(Json(cluster).dump()).get<Cluster>(), cluster) << name;
  }
  EXPECT_EQ(message_of([] { named_cluster("h100x8", 1); }),
            "unknown cluster \"h100x8\"; known: h200x8, a100x4, mi250x8");
  EXPECT_THAT(message_of([] { named_cluster("h200x8", 0); }), HasSubstr("at least 1 host, not 0"));
}

TEST(Cluster, JsonMayOmitWhatFollowsFromTheRest) {
  const Cluster cluster = named_cluster("a100x4", 2);
  Json j = cluster;
  j.erase("to_host");
  for (Json& host : j["hosts"]) {
    host.erase("memory");
    host.erase("nic_bandwidth");
  }
  const Cluster read = j.get<Cluster>();
  EXPECT_EQ(read.to_host, cluster.in_host);
  EXPECT_EQ(read.hosts[1].memory, Bytes(0));
  EXPECT_EQ(read.hosts[1].nic_bandwidth, 4 * 12.5e9);
  EXPECT_NO_THROW(verify(read));
}

TEST(Cluster, VerifyNamesTheField) {
  EXPECT_NO_THROW(verify(cpu_cluster(2, Bytes(1 << 20), 2)));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts.clear(); }), HasSubstr("hosts is empty"));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts[0].devices = 0; }), HasSubstr("hosts[0].devices"));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts[0].full_speed_devices = 0; }),
              HasSubstr("hosts[0].full_speed_devices"));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts[0].nic_bandwidth = 0; }),
              HasSubstr("hosts[0].nic_bandwidth"));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts[0].memory = Bytes(-1); }),
              HasSubstr("hosts[0].memory must be at least 0, not -1"));
  EXPECT_THAT(refusal([](Cluster& c) { c.to_host.bandwidth = 0; }), HasSubstr("to_host.bandwidth"));
  EXPECT_THAT(refusal([](Cluster& c) { c.connecting = Seconds(-1); }), HasSubstr("connecting_s"));
  EXPECT_THAT(refusal([](Cluster& c) { c.device.memory = Bytes(-5); }),
              HasSubstr("device.memory must be finite and positive, not -5"));
  EXPECT_THAT(refusal([](Cluster& c) { c.device.flops = std::numeric_limits<double>::infinity(); }),
              HasSubstr("device.flops must be finite and positive, not inf"));
  EXPECT_THAT(refusal([](Cluster& c) { c.device.memory_bandwidth = 0; }),
              HasSubstr("device.memory_bandwidth"));
  EXPECT_THAT(refusal([](Cluster& c) { c.in_host.bandwidth = 0; }), HasSubstr("in_host.bandwidth"));
  EXPECT_THAT(refusal([](Cluster& c) { c.between_hosts.latency = Seconds(-1); }),
              HasSubstr("between_hosts.latency"));
}

TEST(Cluster, JsonErrorsNameTheKey) {
  Json j = named_cluster("h200x8", 1);
  j["device"].erase("flops");
  EXPECT_EQ(message_of([&] { as<Cluster>(j); }),
            "cluster: key \"device\": cluster device: missing key \"flops\"");
}

TEST(Cluster, UnknownKeysAndHugeCountsAreRefused) {
  Json j = named_cluster("h200x8", 1);
  j["hosts"][0]["device"] = 8;
  EXPECT_THAT(message_of([&] { as<Cluster>(j); }), HasSubstr("unknown key \"device\""));
  for (const int devices : {kMostDevices + 1, 1'000'000'000, 2147483647}) {
    EXPECT_THAT(refusal([&](Cluster& c) { c.hosts[0].devices = devices; }),
                HasSubstr("at most 16384 are legal"));
  }
  EXPECT_THAT(refusal([](Cluster& c) {
                c.hosts.resize(3, c.hosts[0]);
                for (HostSpec& host : c.hosts) host.devices = 2147483647;
              }),
              HasSubstr("up to hosts[0] there are 2147483647 devices"));
}

}  // namespace
}  // namespace nereus
