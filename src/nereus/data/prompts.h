// Prompts from JSON lines: verl's schema, {prompt, label|answer}, plain {prompt}, or {prompt_ids}.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nereus/base/json.h"

namespace nereus {

struct Prompt {
  std::string text;          // a string prompt, or the content of a single user message
  std::vector<int64_t> ids;  // "prompt_ids": tokens instead of a text, which is then empty
  std::string ground_truth;  // label, answer or reward_model.ground_truth; may be empty
  std::string data_source;   // verl's reward key; may be empty
  Json extra;                // the whole row
};

// Reads all rows. `prompt_key` as in data.prompt_key. Throws Error(kInvalidInput) with file, line
// number and what is wrong for the first bad row, or if the file has no rows.
std::vector<Prompt> read_prompts(const std::filesystem::path& file, const std::string& prompt_key);

}  // namespace nereus
