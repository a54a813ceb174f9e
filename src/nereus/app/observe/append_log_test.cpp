#include "nereus/app/observe/append_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "nereus/core/base/error.h"
#include "nereus/runtime/files/files.h"

namespace nereus {
namespace {

namespace fs = std::filesystem;

// As long as it lives no file may grow beyond `bytes`: what a full disk is to a program.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

class AppendLogTest : public testing::Test {
 protected:
  AppendLogTest()
      : file_(fs::temp_directory_path() / ("nereus_append_log_" + std::to_string(::getpid()))) {}
  ~AppendLogTest() override { fs::remove(file_); }
  fs::path file_;
};

TEST_F(AppendLogTest, GoesOnBehindWhatIsThere) {
  write_text(file_, "one\n");
  AppendLog(file_).append("two\n");
  EXPECT_EQ(read_text(file_), "one\ntwo\n");
}

TEST_F(AppendLogTest, AFullDiskTearsNoRecordAndLosesNone) {
  AppendLog log(file_);
  log.append("first\n");
  {
    const FullDisk full(10);
    log.append("second\n");
    log.append("third\n");
    EXPECT_EQ(read_text(file_), "first\n") << "whole records only";
    try {
      log.flush();
      FAIL() << "there is something left to write";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
    }
  }
  log.append("fourth\n");
  EXPECT_EQ(read_text(file_), "first\nsecond\nthird\nfourth\n");
  EXPECT_NO_THROW(log.flush());
}

}  // namespace
}  // namespace nereus
