// What users of other frameworks write: dotted keys with their values, in a command line or YAML.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace nereus {

// Values as text by key; flags keep their dashes ("--vllm.num_engines") and, if they stand alone,
// are "true". What is given twice counts as given last.
using ForeignKeys = std::map<std::string, std::string>;

// YAML, or else words as a shell reads them: "a.b=c", "+a.b=c", "--key value", "--key=value",
// "--flag"; comments, line continuations and other words (the program's name) are skipped. Throws
// Error(kInvalidInput) for YAML that never ends: verify_yaml().
ForeignKeys read_foreign_keys(const std::string& text);

// The words of a command line; quotes are taken off, comments left out.
std::vector<std::string> shell_words(const std::string& text);

}  // namespace nereus
