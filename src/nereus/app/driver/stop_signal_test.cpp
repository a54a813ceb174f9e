#include "nereus/app/driver/stop_signal.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

TEST(StopSignal, TheFirstSignalSetsTheFlag) {
  StopSignal stop;
  stop.protect();
  EXPECT_FALSE(stop.requested());
  EXPECT_EQ(stop.number(), 0);
  EXPECT_NO_THROW(stop.token().check());
  std::raise(SIGTERM);
  std::raise(SIGHUP);
  std::raise(SIGHUP);
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(stop.number(), SIGTERM);
  EXPECT_THROW(stop.token().check(), Stopped);
}

TEST(StopSignal, AnImpatientSecondOneDoesNotEndAProcessThatIsOnItsWayOut) {
  EXPECT_EXIT(
      {
        {
          StopSignal stop;
          stop.protect();
          std::raise(SIGINT);
        }
        std::raise(SIGTERM);
        std::exit(130);
      },
      testing::ExitedWithCode(130), "");
}

TEST(StopSignal, WithoutASignalTheUsualHandlersAreBack) {
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, SIG_DFL);  // whatever earlier tests left
        {
          const StopSignal stop;
        }
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignal, SaysAtOnceWhatItDoes) {
  StopSignal stop;
  stop.protect();
  stop.at_step(41);
  testing::internal::CaptureStderr();
  std::raise(SIGINT);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("Stopping: what step 42 "),
            std::string::npos);
}

TEST(StopSignal, WritesThatNobodyReadsFailOnly) {
  const StopSignal stop;
  std::raise(SIGPIPE);
  std::raise(SIGXFSZ);
  EXPECT_FALSE(stop.requested());
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

TEST(StopSignal, BeforeTheRunBeganItTakesAwayWhatWasMade) {
  const auto root = std::filesystem::temp_directory_path() / "nereus_stop_signal_test";
  const auto full = root / "full";
  std::filesystem::create_directories(full / "somebody's");
  std::filesystem::create_directories(root / "empty");
  EXPECT_EXIT(
      {
        StopSignal stop;
        stop.leave_nothing_of({root / "empty", full, root});
        std::raise(SIGTERM);
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_FALSE(std::filesystem::exists(root / "empty"));
  EXPECT_TRUE(std::filesystem::exists(full / "somebody's"));
  std::filesystem::remove_all(root);
}

TEST(StopSignal, WhileThereIsNothingToSaveTheFirstOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(128 + SIGINT), "before the run began");
}

}  // namespace
}  // namespace nereus
