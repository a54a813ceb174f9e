#include "nereus/core/base/json.h"

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

TEST(Json, NumbersAreTakenAsTheyAreOrRefused) {
  const auto refused = [](const char* text, auto kind) {
    const Json j = {{"n", parse_json(text, "")}};
    const std::string message = message_of([&] { require<decltype(kind)>(j, "n", "file.json:3"); });
    EXPECT_THAT(message, AllOf(StartsWith("file.json:3: key \"n\": expected"), HasSubstr("not ")))
        << text;
  };
  for (const char* text : {"4.9", "4.0", "1e30", "2147483648", "-2147483649", "true", "\"4\"",
                           "null", "[4]", "18446744073709551616"}) {
    refused(text, int{});
  }
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "0.5"}) {
    refused(text, int64_t{});
  }
  for (const char* text : {"-1", "1.5", "false"}) refused(text, uint64_t{});
  for (const char* text : {"true", "\"1\"", "{}"}) refused(text, double{});
  for (const char* text : {"1", "0", "\"true\""}) refused(text, bool{});
  for (const char* text : {"[1, 2.5]", "[true]", "1", "{}"}) refused(text, std::vector<int>{});
  refused("[1]", std::map<std::string, std::string>{});
  refused("{\"a\": 1}", std::map<std::string, std::string>{});

  const Json edges = {{"low", std::numeric_limits<int64_t>::min()},
                      {"high", std::numeric_limits<uint64_t>::max()},
                      {"whole", 3}};
  EXPECT_EQ(require<int64_t>(edges, "low", ""), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(require<uint64_t>(edges, "high", ""), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(require<double>(edges, "whole", ""), 3.0);
}

std::string nested(size_t depth, const std::string& open, const std::string& close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  text += "1";
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Json, DeepNestingIsRefusedWithItsPlace) {
  EXPECT_NO_THROW(parse_json(nested(kMostJsonNesting, "[", "]"), ""));
  EXPECT_EQ(parse_json("[\"" + std::string(500, '[') + "\\\"{\"]", "")[0].get<std::string>().size(),
            502U);
  for (const size_t depth : {size_t{kMostJsonNesting} + 1, size_t{60'000}, size_t{5'000'000}}) {
    EXPECT_THAT(message_of([&] { parse_json("\n" + nested(depth, "[", "]"), "x.json"); }),
                StartsWith("x.json: nested deeper than 100 levels at line 2, column 101;"));
    EXPECT_THAT(message_of([&] { parse_json(nested(depth, "{\"a\":", "}"), "x.json"); }),
                HasSubstr("nested deeper"));
    EXPECT_THAT(message_of([&] { parse_json(nested(depth, "[", ""), "x.json"); }),
                HasSubstr("nested deeper"));
  }
}

TEST(Json, MessagesSayWhereWithoutTheLibrarysWords) {
  for (const std::string text :
       {"{\"step\": 1e400}", "[-1e400]", "{", "", "nul", "\"\xff\"", "\"abc", "{\"a\" 1}", "[1 2]",
        "\"\x01\"", "1 1", "\xef\xbb", "{\"a\":1,}", "NaN"}) {
    const std::string message = message_of([&] { parse_json(text, "run.jsonl:7"); });
    EXPECT_THAT(message, StartsWith("run.jsonl:7: not valid JSON at line 1, column "));
    EXPECT_THAT(message, ::testing::Not(HasSubstr("json.exception")));
    EXPECT_EQ(message.find('\xff'), std::string::npos);
  }
  EXPECT_THAT(message_of([] { parse_json("{\"a\": 1,\n\"step\": 1e400}", "x"); }),
              AllOf(HasSubstr("line 2"), HasSubstr("\"step\""), HasSubstr("1e400")));
  EXPECT_LT(message_of([] { parse_json("[\"" + std::string(100'000, 'a'), "x"); }).size(), 200U);
}

TEST(Json, LongValuesAreNotRepeatedInMessages) {
  const Json j = {{"a", Json::array()}, {"b", std::string(100'000, 'x')}};
  Json many = j;
  for (int i = 0; i < 100'000; ++i) many["a"].push_back(i);
  for (const char* key : {"a", "b"}) {
    EXPECT_LT(message_of([&] { require<int>(many, key, "x"); }).size(), 250U);
  }
}

TEST(Json, UnknownKeysAreNamed) {
  EXPECT_NO_THROW(refuse_unknown_keys({{"units", 1}}, {"units", "role"}, "plan"));
  EXPECT_THAT(message_of([] { refuse_unknown_keys({{"unit", 1}}, {"units", "role"}, "plan"); }),
              AllOf(StartsWith("plan: unknown key \"unit\""), HasSubstr("\"units\"")));
  EXPECT_THAT(message_of([] { refuse_unknown_keys(3, {"units"}, "plan"); }), HasSubstr("object"));
}

TEST(Json, LinesAreWrittenWhateverIsInThem) {
  EXPECT_EQ(to_line({{"a", "x\xffy\n"}}), "{\"a\":\"x\xef\xbf\xbdy\\n\"}");
}

}  // namespace
}  // namespace nereus
