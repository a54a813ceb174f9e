#include "nereus/core/controller/monitor.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

using Signals = std::map<std::string, double>;

TEST(Horizon, IsOneBeforeTheFirstCrossingAndAnAverageOfIntervalsAfter) {
  Horizon horizon(0.5, 0);
  EXPECT_DOUBLE_EQ(horizon.expected(), 1);
  horizon.cross(9);
  EXPECT_DOUBLE_EQ(horizon.expected(), 5);
  horizon.cross(12);
  EXPECT_DOUBLE_EQ(horizon.expected(), 4);
}

TEST(Horizon, AnUnknownStartCountsNoInterval) {
  Horizon horizon(0.5);
  horizon.cross(100);
  EXPECT_DOUBLE_EQ(horizon.expected(), 1);
  horizon.cross(104);
  EXPECT_DOUBLE_EQ(horizon.expected(), 2.5);
}

TEST(Monitor, FiresBeyondTheThresholdOnly) {
  Monitor monitor({.length_threshold = 0.3});
  EXPECT_TRUE(monitor.check(0, {{"response_length", 100}}).empty());
  EXPECT_TRUE(monitor.check(1, {{"response_length", 130}}).empty());
  EXPECT_TRUE(monitor.check(2, {{"response_length", 70}}).empty());
  const auto crossings = monitor.check(3, {{"response_length", 131}});
  ASSERT_EQ(crossings.size(), 1);
  EXPECT_EQ(crossings[0].signal, "response_length");
  EXPECT_EQ(crossings[0].reference, 100);
  EXPECT_EQ(crossings[0].value, 131);
  EXPECT_EQ(monitor.check(4, {{"response_length", 69}}).size(), 1);
}

TEST(Monitor, ALastingDeviationFiresOnceIfReset) {
  Monitor monitor({});
  monitor.check(0, {{"response_length", 100}});
  const Signals longer = {{"response_length", 200}};
  EXPECT_EQ(monitor.check(1, longer).size(), 1);
  EXPECT_EQ(monitor.check(2, longer).size(), 1);
  monitor.reset(longer);
  EXPECT_TRUE(monitor.check(3, longer).empty());
}

TEST(Monitor, SignalsWithoutThresholdNeverFire) {
  Monitor monitor({});
  monitor.check(0, {{"devices", 4}});
  EXPECT_TRUE(monitor.check(1, {{"devices", 1000}}).empty());
}

TEST(Monitor, AForgottenSignalStartsAnew) {
  Monitor monitor({});
  monitor.check(0, {{"efficiency", 1}});
  monitor.forget("efficiency");
  EXPECT_TRUE(monitor.check(1, {{"efficiency", 5}}).empty());
  EXPECT_TRUE(monitor.check(2, {{"efficiency", 5}}).empty());
  EXPECT_EQ(monitor.check(3, {{"efficiency", 1}}).size(), 1);
}

TEST(Monitor, TheSmallestHorizonCountsAndOnlyCrossingsUpdateIt) {
  Monitor monitor({.horizon_smoothing = 0.5});
  EXPECT_DOUBLE_EQ(monitor.horizon({}), 1);
  monitor.check(0, {{"response_length", 100}});
  monitor.event(9, "pool");
  EXPECT_DOUBLE_EQ(monitor.horizon({"pool"}), 5);
  for (int step = 10; step < 20; ++step) monitor.check(step, {{"response_length", 100}});
  EXPECT_DOUBLE_EQ(monitor.horizon({"pool"}), 5);
  EXPECT_DOUBLE_EQ(monitor.horizon({"pool", "response_length"}), 1);
  monitor.check(20, {{"response_length", 200}});
  EXPECT_DOUBLE_EQ(monitor.horizon({"response_length"}), 10.5);
  EXPECT_DOUBLE_EQ(monitor.horizon({"pool", "response_length"}), 5);
}

TEST(Monitor, GoesOnAfterARestart) {
  Monitor monitor({});
  monitor.check(0, {{"response_length", 100}, {"efficiency", 0.1}});
  monitor.check(8, {{"response_length", 200}, {"efficiency", 0.1}});
  monitor.event(6, "pool");
  Monitor restored({});
  restored.restore(parse_json(monitor.save().dump(), "saved"));
  EXPECT_EQ(restored.save(), monitor.save());
  EXPECT_DOUBLE_EQ(restored.horizon({"response_length"}), monitor.horizon({"response_length"}));
  EXPECT_EQ(restored.check(9, {{"response_length", 200}}).size(), 1);
}

}  // namespace
}  // namespace nereus
