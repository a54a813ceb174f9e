#include "nereus/core/base/json_members.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "nereus/core/base/json.h"

namespace nereus {
namespace {

TEST(JsonMembers, KeepTheTextOfTheirValues) {
  const auto members = json_members(
      " { \"big\" : 12345678901234567890123 , \"sum\":0.30000000000000004,\"e\": 1E+2 ,"
      "\"list\": [1.50, {\"a\": \"}]\\\"\"}] , \"nothing\": null,\"\\u0061\\\"b\": true\n, "
      "\"big\": -0 } ");
  const std::map<std::string, std::string> expected = {
      {"big", "-0"},       {"sum", "0.30000000000000004"},
      {"e", "1E+2"},       {"list", "[1.50, {\"a\": \"}]\\\"\"}]"},
      {"nothing", "null"}, {"a\"b", "true"}};
  EXPECT_EQ(members, expected);
}

TEST(JsonMembers, OtherValuesHaveNone) {
  for (const char* json : {"", "{}", " { } ", "[{\"a\": 1}]", "\"{\"", "17"}) {
    EXPECT_TRUE(json_members(json).empty()) << json;
  }
}

std::string name_of(int i) {
  std::string name = "{\"\\";
  name += std::to_string(i);
  return name;
}

Json any_value(int depth) {
  const int kind = *rc::gen::inRange(0, depth > 0 ? 6 : 4);
  if (kind == 0) return *rc::gen::arbitrary<int64_t>();
  if (kind == 1)
    return Json::parse(*rc::gen::elementOf(
        std::vector<std::string>{"1.5", "-2e-300", "null", "true", "[]", "{}", "0.1"}));
  if (kind <= 3)
    return *rc::gen::elementOf(std::vector<std::string>{"", ",", "}", "\\", "\"", "é\n", "a:b"});
  Json value = kind == 4 ? Json::array() : Json::object();
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    Json member = any_value(depth - 1);
    if (kind == 4)
      value.push_back(std::move(member));
    else
      value[name_of(i)] = std::move(member);
  }
  return value;
}

// Whatever the object and its layout, each text means what the member is.
RC_GTEST_PROP(JsonMembers, MeanTheMembers, ()) {
  Json object = Json::object();
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) object[name_of(i)] = any_value(3);
  const auto members = json_members(object.dump(*rc::gen::inRange(-1, 3)));
  RC_ASSERT(members.size() == object.size());
  for (const auto& [name, text] : members) RC_ASSERT(Json::parse(text) == object.at(name));
}

}  // namespace
}  // namespace nereus
