#include "nereus/base/json.h"

#include <algorithm>
#include <cstddef>

namespace nereus {

Json parse_json(const std::string& text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    // `byte` counts from 1 and points just behind what the parser could not use.
    const size_t position = std::clamp<size_t>(error.byte, 1, text.size() + 1) - 1;
    const std::string before = text.substr(0, position);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = position - (before.rfind('\n') + 1) + 1;
    throw Error(ErrorCode::kInvalidInput, where + ": not valid JSON at line " +
                                              std::to_string(line) + ", column " +
                                              std::to_string(column) + ": " + error.what());
  }
}

}  // namespace nereus
