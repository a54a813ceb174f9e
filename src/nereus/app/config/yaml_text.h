// YAML from users: read in bounds, so that whoever walks it comes to an end.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace nereus {

// Bytes of YAML text that are read: no config comes near it.
inline constexpr size_t kMostYamlBytes = size_t{1} << 20U;

// The one document of the text, or a null node. Throws Error(kInvalidInput) naming `where`, the
// line and what is wrong: no YAML, more than one document, and what verify_yaml() refuses.
YAML::Node load_yaml(const std::string& text, const std::string& where);

// Throws Error(kInvalidInput) naming `where` and the line of what no config has: collections deeper
// in each other than 50 levels, one that contains itself by an alias, aliases that make more than
// 100,000 values out of a few, a key that is no single word, or one that is given twice.
void verify_yaml(const YAML::Node& root, const std::string& where);

}  // namespace nereus
