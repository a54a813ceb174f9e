// nlohmann::json under a short name, and reading with errors that name the key.
#pragma once

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "nereus/core/base/error.h"

namespace nereus {

using Json = nlohmann::json;

// Arrays and objects may lie so deep in each other: no file of ours or of the field comes near it,
// and copying, printing and destroying values recurse.
inline constexpr int kMostJsonNesting = 100;

// Text of a value for messages: of a long one the beginning.
std::string shown_json(const Json& j);

namespace detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class T>
struct IsMap<std::map<std::string, T>> : std::true_type {};

[[noreturn]] void refuse_value(const std::string& expected, const Json& j);

}  // namespace detail

// The value as exactly such a T: numbers are neither rounded nor wrapped, booleans are no numbers.
// Throws Error(kInvalidInput) that says what was expected and what is there.
template <class T>
T as(const Json& j) {
  if constexpr (std::is_same_v<T, Json>) {
    return j;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!j.is_boolean()) detail::refuse_value("true or false", j);
    return j.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    const bool fits = j.is_number_unsigned()
                          ? std::in_range<T>(j.get<uint64_t>())
                          : j.is_number_integer() && std::in_range<T>(j.get<int64_t>());
    if (!fits) {
      detail::refuse_value("a whole number from " + std::to_string(Limits::min()) + " to " +
                               std::to_string(Limits::max()),
                           j);
    }
    return j.get<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!j.is_number()) detail::refuse_value("a number", j);
    return j.get<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!j.is_string()) detail::refuse_value("text", j);
    return j.get<std::string>();
  } else if constexpr (detail::IsVector<T>::value) {
    if (!j.is_array()) detail::refuse_value("a list", j);
    T list;
    list.reserve(j.size());
    for (const Json& item : j) list.push_back(as<typename T::value_type>(item));
    return list;
  } else if constexpr (detail::IsMap<T>::value) {
    if (!j.is_object()) detail::refuse_value("an object", j);
    T map;
    for (const auto& [key, item] : j.items()) map[key] = as<typename T::mapped_type>(item);
    return map;
  } else {
    try {
      return j.get<T>();
    } catch (const Json::exception&) {
      detail::refuse_value("another kind of value", j);
    }
  }
}

// j[key] as T. Throws Error(kInvalidInput) naming `where`, the key and the problem if it is missing
// or not exactly such a value.
template <class T>
T require(const Json& j, const char* key, const std::string& where) {
  if (!j.is_object() || !j.contains(key)) {
    throw Error(ErrorCode::kInvalidInput, where + ": missing key \"" + key + "\"");
  }
  try {
    return as<T>(j.at(key));
  } catch (const Error& error) {
    throw Error(error.code(), where + ": key \"" + key + "\": " + error.what());
  }
}

// j[key] as T, or `fallback` if the key is missing or null; same error for another type.
template <class T>
T optional(const Json& j, const char* key, T fallback, const std::string& where) {
  if (!j.is_object() || !j.contains(key) || j.at(key).is_null()) return fallback;
  return require<T>(j, key, where);
}

// Throws Error(kInvalidInput) naming `where` unless j is an object all of whose keys are among
// `known`; the message suggests the nearest one.
void refuse_unknown_keys(const Json& j, const std::vector<std::string>& known,
                         const std::string& where);

// Parses text. Throws Error(kInvalidInput) naming `where`, the position and what is wrong: no JSON,
// numbers beyond a double's range, or nesting deeper than kMostJsonNesting.
Json parse_json(const std::string& text, const std::string& where);

// One line of text, whatever is in it: bytes that are no UTF-8 are replaced.
std::string to_line(const Json& j);

}  // namespace nereus
