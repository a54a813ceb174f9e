#include "nereus/driver/stop_signal.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

TEST(StopSignal, TheFirstSignalSetsTheFlag) {
  const StopSignal stop;
  EXPECT_FALSE(stop.requested());
  EXPECT_EQ(stop.number(), 0);
  std::raise(SIGTERM);
  std::raise(SIGHUP);
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(stop.number(), SIGTERM);
}

TEST(StopSignal, WhatIsIgnoredStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignal stop;
    std::raise(SIGHUP);
    EXPECT_FALSE(stop.requested());
  }
  std::signal(SIGHUP, SIG_DFL);
}

TEST(StopSignal, ASecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace nereus
