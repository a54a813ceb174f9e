#include "nereus/core/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Error, ExitCodes) {
  EXPECT_EQ(exit_code(ErrorCode::kInvalidInput), 2);
  EXPECT_EQ(exit_code(ErrorCode::kInfeasible), 3);
  for (ErrorCode code : {ErrorCode::kIo, ErrorCode::kOutOfMemory, ErrorCode::kNumeric,
                         ErrorCode::kAborted, ErrorCode::kInternal}) {
    EXPECT_EQ(exit_code(code), 1) << to_string(code);
  }
}

TEST(Error, CheckNamesPlaceConditionAndMessage) {
  EXPECT_NO_THROW(NEREUS_CHECK(1 + 1 == 2, "arithmetic"));
  try {
    NEREUS_CHECK(1 + 1 == 3, "arithmetic fails for " + std::to_string(3));
    FAIL() << "the check did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("error_test.cpp:"), HasSubstr("1 + 1 == 3"),
                                    HasSubstr("arithmetic fails for 3")));
  }
}

}  // namespace
}  // namespace nereus
