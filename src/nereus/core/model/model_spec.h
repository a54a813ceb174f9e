// The shape of a decoder-only transformer, as a Hugging Face config.json gives it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"
#include "nereus/core/base/units.h"

namespace nereus {

enum class DType { kFloat64, kFloat32, kBFloat16, kFloat16 };
Bytes size_of(DType dtype);
std::string to_string(DType dtype);  // "float64", "float32", "bfloat16", "float16"
DType parse_dtype(const std::string& text);

// What sits on top of the last hidden state.
enum class Head { kLanguageModel, kScalar };  // kScalar: a critic's value, tensor "score.weight"

// Llama-3 frequency scaling of RoPE ("rope_type": "llama3").
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int original_max_position = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelSpec {
  std::string model_type = "llama";  // llama, mistral, qwen2, qwen3, qwen3_moe
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int64_t max_position = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // qwen2
  bool qk_norm = false;   // qwen3, qwen3_moe
  // Mixture of experts in every layer (qwen3_moe) in place of the FFN; 0 experts: none.
  int num_experts = 0;
  int experts_per_token = 0;
  int64_t moe_intermediate_size = 0;  // FFN width of one expert
  Head head = Head::kLanguageModel;
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;
  bool operator==(const ModelSpec&) const = default;
};

// Reads a Hugging Face config.json. Throws Error(kInvalidInput) naming `where` for a missing key,
// an unsupported model_type (listing the supported ones), an unsupported feature (quantised
// weights, sliding window in use, other RoPE scaling, biases elsewhere, another activation, layers
// without experts among those that have them) or impossible sizes, RoPE factors, epsilons and ids
// of tokens. Keys that may be missing or null have transformers' defaults; those of its versions 4
// (rope_theta, rope_scaling) and 5 (rope_parameters) are both read, the older first.
ModelSpec parse_model_config(const Json& config, const std::string& where);
// The inverse: a config.json that transformers loads (LlamaForCausalLM, …).
Json to_hf_config(const ModelSpec& spec, DType dtype);
// The critic of an actor: the same body with a scalar head, never tied.
ModelSpec as_critic(const ModelSpec& actor);

// Parameters of the whole model (tied embeddings counted once).
int64_t parameter_count(const ModelSpec& spec);

}  // namespace nereus
