#include "nereus/driver/stop_signal.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

TEST(StopSignal, TheFirstSignalSetsTheFlag) {
  const StopSignal stop;
  EXPECT_FALSE(stop.requested());
  std::raise(SIGTERM);
  EXPECT_TRUE(stop.requested());
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
