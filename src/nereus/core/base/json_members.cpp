#include "nereus/core/base/json_members.h"

#include "nereus/core/base/json.h"

namespace nereus {

namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Behind the string that begins at `begin`.
size_t end_of_string(std::string_view json, size_t begin) {
  size_t i = begin + 1;
  while (i < json.size() && json[i] != '"') i += json[i] == '\\' ? 2 : 1;
  return i + 1;
}

// Where the value that begins at `begin` is followed by a comma, or the object ends.
size_t end_of_value(std::string_view json, size_t begin) {
  int depth = 0;
  size_t i = begin;
  while (i < json.size()) {
    const char c = json[i];
    if (c == '"') {
      i = end_of_string(json, i);
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}')) break;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++i;
  }
  return i;
}

}  // namespace

std::map<std::string, std::string> json_members(std::string_view json) {
  std::map<std::string, std::string> members;
  size_t i = json.find_first_not_of(kSpace);
  if (i == std::string_view::npos || json[i] != '{') return members;
  while ((i = json.find_first_not_of(kSpace, i + 1)) < json.size() && json[i] == '"') {
    const size_t name_end = end_of_string(json, i);
    const auto name = Json::parse(json.substr(i, name_end - i)).get<std::string>();
    const size_t value = json.find_first_not_of(kSpace, json.find(':', name_end) + 1);
    i = end_of_value(json, value);
    const size_t last = json.find_last_not_of(kSpace, i - 1);
    members[name] = json.substr(value, last + 1 - value);
  }
  return members;
}

}  // namespace nereus
