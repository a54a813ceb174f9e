#include "nereus/runtime/supply/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/core/base/error.h"
#include "nereus/runtime/files/files.h"

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

TEST(SupplySchedule, TracesNameFileAndLine) {
  const std::filesystem::path file = ::testing::TempDir() + "nereus_trace.csv";
  const auto refusal = [&](const std::string& text) {
    write_text(file, text);
    try {
      read_supply_trace(kCluster, file);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("step,devices\n0,4\n\n# less\n5, 2\r\n"), "accepted");
  for (const char* line : {"1,99999999999", "99999999999,1", "1,2.5", "1", "1,2,3", "x,1", "1,0x2",
                           "+1,2", "1,\xff", "-", ","}) {
    EXPECT_THAT(refusal("0,4\n" + std::string(line) + "\n"),
                ::testing::HasSubstr("nereus_trace.csv:2: "))
        << line;
  }
  for (const char* text : {"", "0,4\n1,-1\n", "0,4\n0,2\n", "0,5\n", "-1,4\n"}) {
    EXPECT_THAT(refusal(text), ::testing::HasSubstr("nereus_trace.csv: ")) << text;
  }
}

}  // namespace
}  // namespace nereus
