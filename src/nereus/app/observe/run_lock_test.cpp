#include "nereus/app/observe/run_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <functional>
#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/runtime/files/files.h"

namespace nereus {
namespace {

namespace fs = std::filesystem;

class RunLockTest : public testing::Test {
 protected:
  RunLockTest()
      : parent_(fs::temp_directory_path() / ("nereus_run_lock_" + std::to_string(::getpid()))) {}
  ~RunLockTest() override { fs::remove_all(parent_); }

  fs::path parent_;
  fs::path root_ = parent_ / "runs/a";
};

pid_t start_process(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work() ? 0 : 1);
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// What a process of its own makes of it: 0 if `work` returns true.
int in_another_process(const std::function<bool()>& work) { return status_of(start_process(work)); }

// The lock's refusal, or "".
std::string refusal(const fs::path& root) {
  try {
    const RunLock lock(root);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(RunLockTest, OneProcessAtATime) {
  const std::string owner = std::to_string(::getpid());
  {
    const RunLock lock(root_);
    const auto is_refused = [&] {
      const std::string text = refusal(root_);
      return text.find("in use by process " + owner) != std::string::npos &&
             text.find("--run-dir") != std::string::npos;
    };
    EXPECT_EQ(in_another_process(is_refused), 0);
  }
  EXPECT_EQ(in_another_process([&] { return refusal(root_).empty(); }), 0) << "given back";
}

TEST_F(RunLockTest, AChildDoesNotInheritIt) {
  pid_t child = 0;
  {
    RunLock lock(root_);
    lock.keep();  // so that the file is not simply made anew
    child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  EXPECT_EQ(in_another_process([&] { return refusal(root_).empty(); }), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(RunLockTest, WhatDidNotBeginLeavesNothingBehind) {
  {
    const RunLock lock(root_);
    EXPECT_EQ(lock.made(), (std::vector{root_ / "lock", root_, root_.parent_path(), parent_}));
  }
  EXPECT_FALSE(fs::exists(parent_));
  fs::create_directories(root_);
  {
    const RunLock lock(root_);
  }
  EXPECT_TRUE(fs::is_empty(root_)) << "somebody else's directory";
  {
    RunLock lock(root_);
    lock.keep();
  }
  EXPECT_TRUE(fs::exists(root_ / "lock"));
  {
    const RunLock lock(root_);
  }
  EXPECT_TRUE(fs::exists(root_ / "lock")) << "an earlier run's";
}

TEST_F(RunLockTest, ManyThatStartAndEndTogetherNeverHoldItTogether) {
  // Each holds it for a moment, in which nobody else may be in the directory.
  fs::create_directories(parent_);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    for (int turn = 0; turn < 50; ++turn) {
      try {
        const RunLock lock(root_);
        if (!fs::create_directory(root_ / "alone")) ::_exit(1);
        ::usleep(100);
        fs::remove(root_ / "alone");
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidInput) ::_exit(2);
      }
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(RunLockTest, AFileThatIsReplacedBetweenOpeningAndLockingHasNoSecondHolder) {
  fs::create_directories(root_);
  write_text(root_ / "lock", "");
  sigset_t somebody_waits;
  sigemptyset(&somebody_waits);
  sigaddset(&somebody_waits, SIGIO);
  ASSERT_EQ(::sigprocmask(SIG_BLOCK, &somebody_waits, nullptr), 0);
  // Who opens a leased file has found it, and waits for the end of the lease.
  const int leased = ::open((root_ / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (::fcntl(leased, F_SETLEASE, F_RDLCK) != 0) GTEST_SKIP() << "no leases on this file system";
  const std::string owner = std::to_string(::getpid());
  const pid_t child = start_process(
      [&] { return refusal(root_).find("in use by process " + owner) != std::string::npos; });
  const timespec patience = {.tv_sec = 20};
  EXPECT_EQ(::sigtimedwait(&somebody_waits, nullptr, &patience), SIGIO);
  fs::remove(root_ / "lock");
  const RunLock lock(root_);
  EXPECT_EQ(::fcntl(leased, F_SETLEASE, F_UNLCK), 0);
  EXPECT_EQ(status_of(child), 0);
  ::close(leased);
}

TEST_F(RunLockTest, WhereNoFileCanBeMadeItSaysSo) {
  write_text(parent_, "a file");
  EXPECT_THAT(refusal(root_), testing::HasSubstr("--run-dir"));
}

}  // namespace
}  // namespace nereus
