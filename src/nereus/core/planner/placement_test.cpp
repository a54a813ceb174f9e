#include "nereus/core/planner/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/core/planner/begins.h"

namespace nereus {
namespace {

using testing::ElementsAre;

// Hosts of four, four and three devices.
DeviceLine line_with_a_hole() {
  std::vector<DeviceId> devices = all_devices(named_cluster("a100x4", 3)).devices();
  devices.erase(devices.begin() + 1);
  return DeviceLine(DevicePool(devices));
}

TEST(DeviceLine, GroupsStayWithinAHostWhereverTheyBegin) {
  const DeviceLine line = line_with_a_hole();
  EXPECT_EQ(line.devices().front(), (DeviceId{1, 0}));  // the fullest host first
  const auto footprint = line.footprint({.tp = 2}, 3, 1);
  ASSERT_TRUE(footprint);
  EXPECT_THAT(footprint->ranks, ElementsAre(0, 1, -1, 0, 1, 0, 1));
  EXPECT_THAT(footprint->by_host, ElementsAre(2, 4));
  const StagePlan stage = line.place(kActorTraining, {.tp = 2}, 3, 1);
  EXPECT_THAT(stage.units, ElementsAre(ElementsAre(DeviceId{1, 1}, DeviceId{1, 2}),
                                       ElementsAre(DeviceId{2, 0}, DeviceId{2, 1}),
                                       ElementsAre(DeviceId{2, 2}, DeviceId{2, 3})));
  EXPECT_FALSE(line.footprint({.tp = 2}, 1, 3)) << "cannot begin with the last one of a host";
  EXPECT_FALSE(line.footprint({.tp = 2}, 1, 10));
  EXPECT_FALSE(line.footprint({.tp = 2}, 5, 2)) << "too few";
  EXPECT_TRUE(line.footprint({.tp = 1, .pp = 3}, 3, 2)) << "pipelines may cross";
  EXPECT_FALSE(line.footprint({.tp = 1, .pp = 3}, 4, 0));
}

TEST(DeviceLine, IsRegularAsFarAsHostsAreAlike) {
  Cluster cluster = named_cluster("a100x4", 3);
  const DeviceLine line = line_with_a_hole();
  EXPECT_EQ(line.regular(cluster).host, 4);
  EXPECT_EQ(line.regular(cluster).end, 8);
  cluster.hosts[2].nic_bandwidth /= 2;
  EXPECT_EQ(line.regular(cluster).end, 4);
}

TEST(Begins, SmallPoolsHaveAllAndLargeOnesTheBeginningsOfHosts) {
  const auto places = [](int hosts, PlannerOptions options) {
    const Cluster cluster = named_cluster("h200x8", hosts);
    return Begins(DeviceLine(all_devices(cluster)), cluster, options).places();
  };
  EXPECT_THAT(places(2, {}), ElementsAre(0));
  EXPECT_EQ(places(2, {.side_by_side = true}).size(), 16);
  EXPECT_EQ(places(8, {.side_by_side = true}).size(), 32);
  EXPECT_EQ(places(8, {.side_by_side = true})[1], 2);
  EXPECT_EQ(places(128, {.side_by_side = true}).size(), 128);
  EXPECT_EQ(places(128, {.side_by_side = true})[1], 8);
}

TEST(Begins, RepeatThemselvesInWholeHosts) {
  const Cluster cluster = named_cluster("h200x8", 32);
  const Begins begins(DeviceLine(all_devices(cluster)), cluster, {.side_by_side = true});
  EXPECT_TRUE(begins.host_by_host());
  EXPECT_FALSE(begins.every());
  EXPECT_EQ(begins.at_or_after(9), 2);
  EXPECT_EQ(begins.at_or_after(16), 2);
  EXPECT_EQ(begins.at_or_after(249), begins.places().size());
}

}  // namespace
}  // namespace nereus
