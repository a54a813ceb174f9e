// What a Hugging Face model directory says of its model, apart from the weights: config.json,
// generation_config.json.
#pragma once

#include <filesystem>

#include "nereus/core/model/model_spec.h"

namespace nereus {

// Where a model comes from.
struct ModelSource {
  std::filesystem::path path;   // a Hugging Face model directory
  bool random_weights = false;  // only its config.json is used; weights are drawn from the seed
  bool operator==(const ModelSource&) const = default;
};

inline constexpr const char* kGenerationConfig = "generation_config.json";

// config.json of a directory. As in transformers and vLLM, responses end at the eos_token_id of
// generation_config.json where there is one (an id or a list), else at config.json's. Throws
// Error(kInvalidInput) naming the path and the value.
ModelSpec read_model_spec(const std::filesystem::path& directory);

}  // namespace nereus
