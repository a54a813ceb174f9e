// nlohmann::json under a short name, and reading with errors that name the key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "nereus/base/error.h"

namespace nereus {

using Json = nlohmann::json;

// j[key] as T. Throws Error(kInvalidInput) naming `where`, the key and the problem if it is missing
// or of another type.
template <class T>
T require(const Json& j, const char* key, const std::string& where) {
  if (!j.is_object() || !j.contains(key)) {
    throw Error(ErrorCode::kInvalidInput, where + ": missing key \"" + key + "\"");
  }
  try {
    return j.at(key).get<T>();
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kInvalidInput,
                where + ": key \"" + key + "\" has an unusable value " + j.at(key).dump());
  }
}

// j[key] as T, or `fallback` if the key is missing or null; same error for another type.
template <class T>
T optional(const Json& j, const char* key, T fallback, const std::string& where) {
  if (!j.is_object() || !j.contains(key) || j.at(key).is_null()) return fallback;
  return require<T>(j, key, where);
}

// Parses text; throws Error(kInvalidInput) naming `where` and the position.
Json parse_json(const std::string& text, const std::string& where);

}  // namespace nereus
