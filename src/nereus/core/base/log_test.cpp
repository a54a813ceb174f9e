#include "nereus/core/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereus {
namespace {

TEST(Log, OneLineEachToStderrAndQuietKeepsWarnings) {
  testing::internal::CaptureStderr();
  log::info("step {} done");
  log::set_quiet(true);
  log::info("hidden");
  log::warn("slow");
  log::error("broken");
  log::set_quiet(false);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("\\[..:..:..\\] step \\{\\} done\n"
                                    "\\[..:..:..\\] warning: slow\n"
                                    "\\[..:..:..\\] error: broken\n"));
}

}  // namespace
}  // namespace nereus
