#include "nereus/live/schedule.h"

#include <gtest/gtest.h>

#include "nereus/base/error.h"

namespace nereus {
namespace {

const Cluster kCluster = cpu_cluster(4, Bytes(1 << 20), 2);

TEST(LengthSchedule, HoldsEachLimitUntilTheNext) {
  const LengthSchedule schedule{{{0, 32}, {10, 128}, {20, 48}}};
  EXPECT_EQ(schedule.at(0), 32);
  EXPECT_EQ(schedule.at(9), 32);
  EXPECT_EQ(schedule.at(10), 128);
  EXPECT_EQ(schedule.at(1000), 48);
  EXPECT_EQ(schedule.longest(), 128);
}

TEST(SupplySchedule, TakesTheFirstDevices) {
  const SupplySchedule supply = supply_of_counts(kCluster, {{0, 4}, {5, 2}, {8, 0}});
  EXPECT_EQ(supply.at(4).size(), 4);
  EXPECT_EQ(supply.at(5), DevicePool({{0, 0}, {0, 1}}));
  EXPECT_TRUE(supply.at(8).empty());
}

TEST(SupplySchedule, RefusesBadEntries) {
  EXPECT_THROW(supply_of_counts(kCluster, {}), Error);
  EXPECT_THROW(supply_of_counts(kCluster, {{1, 4}}), Error) << "must start at step 0";
  EXPECT_THROW(supply_of_counts(kCluster, {{0, 4}, {3, 2}, {3, 4}}), Error);
  EXPECT_THROW(supply_of_counts(kCluster, {{0, 5}}), Error) << "more devices than there are";
}

}  // namespace
}  // namespace nereus
