// Prompts from JSON lines: verl's schema, {prompt, label|answer}, plain {prompt}, or {prompt_ids}.
// A prompt is a text, which is taken as it is, or a list of messages {role, content}, for the chat
// template of the tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nereus/base/json.h"

namespace nereus {

// Bytes of a file of prompts that is read: all of it is kept in memory.
inline constexpr uint64_t kMostPromptBytes = uint64_t{16} << 30U;

struct Prompt {
  int line = 0;              // of the file, from 1
  std::string text;          // a string prompt, or the content of the last user message
  std::string messages;      // all messages as JSON, keys in the file's order; empty: not messages
  std::vector<int64_t> ids;  // "prompt_ids": tokens instead of a text, which is then empty
  std::string ground_truth;  // label, answer or reward_model.ground_truth; may be empty
  std::string data_source;   // verl's reward key; may be empty
  Json extra;                // the whole row
};

// How errors name a line: "FILE row LINE".
std::string prompt_place(const std::filesystem::path& file, int line);

// Reads all rows. `prompt_key` as in data.prompt_key. Throws Error(kInvalidInput) with file, line
// number and what is wrong for the first bad row, or if the file has no rows.
std::vector<Prompt> read_prompts(const std::filesystem::path& file, const std::string& prompt_key);

}  // namespace nereus
