// Hugging Face model directories: config.json, generation_config.json, model.safetensors (or shards
// with an index).
#pragma once

#include <filesystem>

#include "nereus/core/model/tensor_spec.h"
#include "nereus/runtime/data/safetensors.h"
#include "nereus/runtime/files/model_config.h"

namespace nereus {

// torch's name for a dtype.
at::ScalarType scalar_type(DType dtype);

// Whether a scalar head may be new, as a critic's (a value head starts at 0), or must have been
// trained, as a reward model's.
enum class ScoreHead { kNew, kTrained };

// All tensors of `spec` from model.safetensors or model.safetensors.index.json, converted to
// `dtype`. Accepts a missing lm_head for tied models and a body without the "model." prefix. A new
// head whose score.weight is missing gets zeros. An index may name files of its directory only
// (which may be links, as in Hugging Face's cache). Throws Error(kInvalidInput) naming tensor,
// file, found and expected shape; for missing tensors; for tensors that the model does not have,
// but for those that transformers ignores too (another task's head, rotary_emb.inv_freq); for a
// name in two files; for NaN or Inf (tensor and number of bad elements).
TensorMap read_model(const std::filesystem::path& directory, const ModelSpec& spec, DType dtype,
                     ScoreHead head = ScoreHead::kNew);

// Random weights: normal(0, 0.02), norms 1, biases 0, a new score 0; a function of (seed, tensor
// name) only.
TensorMap random_model(const ModelSpec& spec, DType dtype, uint64_t seed,
                       ScoreHead head = ScoreHead::kNew);

// Directories whose files go along with exported weights; empty: none.
struct ExportSources {
  std::filesystem::path tokenizer;
  std::filesystem::path model;  // its generation_config.json (temperature, top_p, …)
};

// Writes config.json, generation_config.json (that of `from.model` as it is; where there is none,
// the special tokens of `spec`) and model.safetensors (sharded above max_shard bytes, with an
// index); copies tokenizer files. What a link leads to is copied only if it lies in the directory,
// or is a blob of the same Hugging Face cache: an export that is given away must not carry foreign
// files along. What is left out is warned of by name. Throws Error(kInternal) for a missing tensor
// or a wrong shape, Error(kIo).
void write_model(const std::filesystem::path& directory, const ModelSpec& spec, DType dtype,
                 const TensorMap& tensors, const ExportSources& from,
                 Bytes max_shard = Bytes(int64_t{5} << 30));

}  // namespace nereus
