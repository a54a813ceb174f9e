#include "nereus/app/observe/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <system_error>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Limits, NameWhatWasWantedAndTheLimitsBehindIt) {
  EXPECT_THAT(
      with_limits(std::system_error(EAGAIN, std::generic_category())),
      AllOf(HasSubstr("a thread was wanted"), HasSubstr("ulimit -u"), HasSubstr("ulimit -v")));
  EXPECT_THAT(with_limits(std::bad_alloc()), AllOf(HasSubstr("memory"), HasSubstr("ulimit -v")));
  EXPECT_THAT(with_limits(Error(ErrorCode::kIo, "cannot open a.json: Too many open files")),
              AllOf(HasSubstr("a.json"), HasSubstr("ulimit -n")));
}

TEST(Limits, HaveNothingToDoWithMostErrors) {
  EXPECT_EQ(with_limits(Error(ErrorCode::kInvalidInput, "no such key")), "no such key");
}

}  // namespace
}  // namespace nereus
