// Hugging Face model directories: config.json, model.safetensors (or shards with an index).
#pragma once

#include <filesystem>

#include "nereus/data/safetensors.h"
#include "nereus/model/tensor_spec.h"

namespace nereus {

// torch's name for a dtype.
at::ScalarType scalar_type(DType dtype);

// config.json of a directory. Throws Error(kInvalidInput) naming the path.
ModelSpec read_model_spec(const std::filesystem::path& directory);

// All tensors of `spec` from model.safetensors or model.safetensors.index.json, converted to
// `dtype`. Accepts a missing lm_head for tied models and a body without the "model." prefix. A
// critic whose score.weight is missing gets zeros (a value head starts at 0). Throws
// Error(kInvalidInput) naming tensor, file, found and expected shape; for missing tensors; for NaN
// or Inf (tensor and number of bad elements).
TensorMap read_model(const std::filesystem::path& directory, const ModelSpec& spec, DType dtype);

// Random weights: normal(0, 0.02), norms 1, biases 0, score 0; a function of (seed, tensor name)
// only.
TensorMap random_model(const ModelSpec& spec, DType dtype, uint64_t seed);

// Writes config.json, generation_config.json and model.safetensors (sharded above max_shard bytes,
// with an index); copies tokenizer files from `tokenizer_from` if it is not empty. Throws
// Error(kInternal) for a missing tensor or a wrong shape, Error(kIo).
void write_model(const std::filesystem::path& directory, const ModelSpec& spec, DType dtype,
                 const TensorMap& tensors, const std::filesystem::path& tokenizer_from,
                 Bytes max_shard = Bytes(int64_t{5} << 30));

}  // namespace nereus
