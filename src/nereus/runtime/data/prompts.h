// Prompts from JSON lines: verl's schema, {prompt, label|answer}, plain {prompt}, or {prompt_ids}.
// A prompt is a text or a list of messages, for the chat template of the tokenizer. Messages are
// those of the chat APIs: "role"; "content", a text or a list of parts {"type": "text", "text": …},
// which an assistant's message with "tool_calls" may lack; other members are for the template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"

namespace nereus {

// Bytes of a file of prompts that is read: all of it is kept in memory.
inline constexpr uint64_t kMostPromptBytes = uint64_t{16} << 30U;

struct Prompt {
  int line = 0;      // of the file, from 1
  std::string text;  // a string prompt, or the content of the last user message
  // All messages as JSON, as the file has them; if the row has "tools" or "chat_template_kwargs",
  // an object with these and "messages". Empty: not messages.
  std::string messages;
  std::vector<int64_t> ids;  // "prompt_ids": tokens instead of a text, which is then empty
  // reward_model.ground_truth, or else label or answer, as text: strings as they are, other values
  // as the file writes them. May be empty.
  std::string ground_truth;
  std::string ground_truth_json;  // the same as JSON, with its type and digits; empty: none
  std::string data_source;        // verl's reward key; may be empty
  std::string extra_info;         // an object as JSON, numbers as the file has them; empty: none
  std::string row;                // all of it as JSON, keys in order
};

// How errors name a line: "FILE row LINE".
std::string prompt_place(const std::filesystem::path& file, int line);

// Reads all rows. `prompt_key` as in data.prompt_key. Throws Error(kInvalidInput) with file, line
// number and what is wrong for the first bad row (an image among a message's parts, say), or if the
// file has no rows.
std::vector<Prompt> read_prompts(const std::filesystem::path& file, const std::string& prompt_key);

}  // namespace nereus
