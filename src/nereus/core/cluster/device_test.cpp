#include "nereus/core/cluster/device.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nereus {
namespace {

TEST(Device, TextAndJson) {
  const DeviceId device{12, 3};
  EXPECT_EQ(to_string(device), "12:3");
  EXPECT_EQ(parse_device("12:3"), device);
  EXPECT_EQ(Json(device).dump(), "\"12:3\"");
  EXPECT_EQ(Json(device).get<DeviceId>(), device);
}

TEST(Device, TheMemoryOfAHost) {
  const DeviceId memory{12, kHostMemory};
  EXPECT_TRUE(is_host_memory(memory));
  EXPECT_FALSE(is_host_memory({12, 0}));
  EXPECT_EQ(to_string(memory), "12:host");
  EXPECT_EQ(Json(memory).get<DeviceId>(), memory);
}

TEST(Device, RefusesAnythingElse) {
  for (const char* text : {"", "3", "0:", ":1", "0:1:2", "-1:0", "0:-1", "a:b", "0:1 ", " 0:1",
                           "0,1", "99999999999:0", "host", "-1:host", "0:hosts", "0:-1"}) {
    EXPECT_THROW(parse_device(text), Error) << text;
  }
  EXPECT_THROW(Json(3).get<DeviceId>(), Error);
}

TEST(DevicePool, IsSortedWithoutRepetition) {
  const DevicePool pool({{1, 0}, {0, 1}, {1, 0}, {0, 0}});
  EXPECT_EQ(pool.devices(), (std::vector<DeviceId>{{0, 0}, {0, 1}, {1, 0}}));
  EXPECT_EQ(pool.size(), 3);
  EXPECT_TRUE(pool.contains({0, 1}));
  EXPECT_FALSE(pool.contains({1, 1}));
  EXPECT_TRUE(DevicePool().empty());
}

TEST(DevicePool, JsonRoundTrip) {
  const DevicePool pool({{0, 0}, {0, 1}});
  EXPECT_EQ(Json(pool).dump(), R"(["0:0","0:1"])");
  EXPECT_EQ(Json(pool).get<DevicePool>(), pool);
}

}  // namespace
}  // namespace nereus
