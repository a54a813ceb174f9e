#include "nereus/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Json, RequireReadsOrNamesTheKey) {
  const Json j = {{"layers", 5}, {"name", "tiny"}};
  EXPECT_EQ(require<int>(j, "layers", "config.json"), 5);
  EXPECT_EQ(message_of([&] { require<int>(j, "heads", "config.json"); }),
            "config.json: missing key \"heads\"");
  EXPECT_THAT(message_of([&] { require<int>(j, "name", "config.json"); }),
              AllOf(HasSubstr("\"name\""), HasSubstr("\"tiny\"")));
  EXPECT_THAT(message_of([] { require<int>(Json::array(), "a", "x"); }), HasSubstr("missing"));
}

TEST(Json, OptionalFallsBackOnMissingAndNullOnly) {
  const Json j = {{"a", nullptr}, {"b", 2}, {"c", "text"}};
  EXPECT_EQ(optional(j, "a", 7, "x"), 7);
  EXPECT_EQ(optional(j, "b", 7, "x"), 2);
  EXPECT_EQ(optional(j, "d", 7, "x"), 7);
  EXPECT_THAT(message_of([&] { optional(j, "c", 7, "x"); }), HasSubstr("\"c\""));
}

TEST(Json, ParseErrorsGiveLineAndColumn) {
  EXPECT_EQ(parse_json("[1, 2]", "x"), Json({1, 2}));
  EXPECT_THAT(message_of([] { parse_json("{\"a\": 1,\n  \"b\": }", "plan.json"); }),
              StartsWith("plan.json: not valid JSON at line 2, column 8: "));
  EXPECT_THAT(message_of([] { parse_json("", "empty.json"); }), HasSubstr("line 1, column 1"));
}

}  // namespace
}  // namespace nereus
