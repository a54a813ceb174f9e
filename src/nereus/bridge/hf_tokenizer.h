// tokenizer.json through the Python package tokenizers.
#pragma once

#include "nereus/bridge/tokenizer.h"

namespace nereus {

// Throws Error(kInvalidInput) naming the file if Python, the package or the file does not load.
std::unique_ptr<Tokenizer> open_hf_tokenizer(const std::filesystem::path& tokenizer_json);

}  // namespace nereus
