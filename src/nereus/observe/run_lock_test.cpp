#include "nereus/observe/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "nereus/base/error.h"

namespace nereus {
namespace {

namespace fs = std::filesystem;

TEST(RunLock, OneAtATime) {
  const fs::path root =
      fs::temp_directory_path() / ("nereus_run_lock_" + std::to_string(::getpid()));
  {
    RunLock first(root);
    try {
      const RunLock second(root);
      FAIL() << "two runs in one directory";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr(std::to_string(::getpid())),
                                               testing::HasSubstr("--run-dir")));
    }
    const RunLock moved = std::move(first);
    EXPECT_THROW(RunLock{root}, Error);
  }
  EXPECT_NO_THROW(RunLock{root}) << "given back";
  fs::remove_all(root);
}

}  // namespace
}  // namespace nereus
