// Conversations as a tokenizer's chat template writes them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"

namespace nereus {

struct RenderedChats {
  std::vector<std::string> texts;  // of the conversations before the first that has none
  std::string failure;             // why it has none; empty: all have
};

// The texts of conversations (each a list of messages as JSON) under the chat template in
// `directory`, up to where the assistant's next message begins. `special_tokens`: what templates
// know under names such as bos_token, or null: as the files in the directory say. No value: there
// is no template. Templates are code of strangers, which may loop for ever or ask for any amount of
// memory: they run in a worker process (PythonWorkers) that ends with this call, and a conversation
// may take 10 s, 1 GiB and a text of 16 Mi characters. Throws Error(kInvalidInput) naming the
// directory for a template that cannot be read.
std::optional<RenderedChats> render_chats(const std::filesystem::path& directory,
                                          const Json& special_tokens,
                                          const std::vector<std::string>& conversations);

}  // namespace nereus
