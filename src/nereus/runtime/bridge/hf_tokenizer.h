// A tokenizer's files through the Python packages tokenizers and transformers.
#pragma once

#include "nereus/runtime/bridge/tokenizer.h"

namespace nereus {

// Reads what is in `directory` as transformers does, without what a tokenizer.json says of
// truncation and padding: tokens that only tokenizer_config.json, special_tokens_map.json or
// added_tokens.json knows, and classes that build their tokenizer in a way of their own. Throws
// Error(kInvalidInput) naming the directory if Python, a package or the files do not load.
std::unique_ptr<Tokenizer> open_hf_tokenizer(const std::filesystem::path& directory);

}  // namespace nereus
