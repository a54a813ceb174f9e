// Reading and writing config.json, with the defaults of transformers' configuration classes.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nereus/base/text.h"
#include "nereus/model/model_spec.h"

namespace nereus {

namespace {

struct Family {
  std::string model_type;
  std::string class_prefix;
};

constexpr const char* kMixture = "qwen3_moe";

std::vector<Family> families() {
  return {{"llama", "Llama"},
          {"mistral", "Mistral"},
          {"qwen2", "Qwen2"},
          {"qwen3", "Qwen3"},
          {kMixture, "Qwen3Moe"}};
}

constexpr const char* kLanguageModelClass = "ForCausalLM";
constexpr const char* kScalarClass = "ForSequenceClassification";

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, where + ": " + what);
}

Family family_of(const std::string& model_type, const std::string& where) {
  std::vector<std::string> supported;
  for (const Family& family : families()) {
    if (family.model_type == model_type) return family;
    supported.push_back(family.model_type);
  }
  refuse(where,
         "model_type \"" + model_type + "\" is not supported; supported: " + join(supported, ", "));
}

// Quantised weights have no gradients of their own, and their tensors are not those of tensors().
void refuse_quantised(const Json& config, const std::string& where) {
  const Json quantisation = optional(config, "quantization_config", Json(), where);
  if (quantisation.empty()) return;
  const auto method = optional<std::string>(quantisation, "quant_method", "", where);
  refuse(where, "quantization_config" + (method.empty() ? "" : " (" + method + ")") +
                    ": a quantised checkpoint cannot be trained; use the model that it was made " +
                    "from, whose config.json has no quantization_config");
}

// Features that would change the result and that we do not compute.
void refuse_unsupported(const Json& config, const ModelSpec& spec, const std::string& where) {
  const auto activation = optional<std::string>(config, "hidden_act", "silu", where);
  if (activation != "silu") {
    refuse(where, "hidden_act \"" + activation + "\" is not supported; supported: silu");
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (optional(config, key, false, where)) {
      refuse(where, std::string(key) + " true is not supported: only qwen2's q, k, v have biases");
    }
  }
  if (spec.num_experts > 0 &&
      (optional(config, "decoder_sparse_step", 1, where) != 1 ||
       !optional<std::vector<int>>(config, "mlp_only_layers", {}, where).empty())) {
    refuse(where,
           "layers without experts (decoder_sparse_step, mlp_only_layers) are not supported");
  }
  for (const auto& type : optional<std::vector<std::string>>(config, "layer_types", {}, where)) {
    if (type != "full_attention") {
      refuse(where, "layer type \"" + type + "\" is not supported; supported: full_attention");
    }
  }
  // A mistral config without the key has transformers' default; qwen has a switch of its own.
  const bool switched_on =
      spec.model_type == "mistral" || optional(config, "use_sliding_window", false, where);
  const int64_t fallback = config.contains("sliding_window") ? 0 : 4096;
  const auto window = optional<int64_t>(config, "sliding_window", fallback, where);
  if (switched_on && window > 0 && window < spec.max_position) {
    refuse(where, "sliding_window " + std::to_string(window) + " below max_position_embeddings " +
                      std::to_string(spec.max_position) +
                      " is not supported; only full attention is");
  }
}

RopeScaling parse_llama3_scaling(const Json& rope, const std::string& where) {
  return {.factor = require<double>(rope, "factor", where),
          .low_freq_factor = require<double>(rope, "low_freq_factor", where),
          .high_freq_factor = require<double>(rope, "high_freq_factor", where),
          .original_max_position = require<int>(rope, "original_max_position_embeddings", where)};
}

// transformers 5 writes one "rope_parameters"; before it, "rope_theta" and "rope_scaling".
void parse_rope(const Json& config, ModelSpec& spec, const std::string& where) {
  const Json none = Json::object();
  const Json scaling = optional(config, "rope_scaling", none, where);
  const Json rope = optional(config, "rope_parameters", scaling, where);
  const double theta = optional(config, "rope_theta", 10000.0, where);
  spec.rope_theta = optional(rope, "rope_theta", theta, where);
  if (optional(rope, "partial_rotary_factor", 1.0, where) != 1) {
    refuse(where, "partial_rotary_factor other than 1 is not supported");
  }
  const auto old_type = optional<std::string>(rope, "type", "default", where);
  const auto type = optional(rope, "rope_type", old_type, where);
  if (type == "llama3") {
    spec.rope_scaling = parse_llama3_scaling(rope, where);
  } else if (type != "default") {
    refuse(where, "RoPE scaling \"" + type + "\" is not supported; supported: default, llama3");
  }
}

Head parse_head(const Json& config, const Family& family, const std::string& where) {
  const std::string language_model = family.class_prefix + kLanguageModelClass;
  const auto architectures = optional<std::vector<std::string>>(config, "architectures", {}, where);
  const std::string architecture = architectures.empty() ? language_model : architectures.front();
  if (architecture == language_model) return Head::kLanguageModel;
  if (architecture != family.class_prefix + kScalarClass) {
    refuse(where, "architecture \"" + architecture + "\" is not supported; supported: " +
                      language_model + ", " + family.class_prefix + kScalarClass);
  }
  constexpr size_t kUnsaidLabels = 2;  // transformers leaves its default out of a saved config
  const size_t labels = config.contains("id2label")
                            ? optional(config, "id2label", Json::object(), where).size()
                            : kUnsaidLabels;
  const auto num_labels = optional(config, "num_labels", labels, where);
  if (num_labels != 1) {
    refuse(where, architecture + " has " + std::to_string(num_labels) +
                      " labels (id2label); a scalar head has 1");
  }
  return Head::kScalar;
}

// One id, a list of ids, or null.
std::vector<int64_t> parse_ids(const Json& config, const char* key, const std::string& where) {
  const Json value = optional(config, key, Json::array(), where);
  if (value.is_array()) return optional<std::vector<int64_t>>(config, key, {}, where);
  return {require<int64_t>(config, key, where)};
}

std::optional<int64_t> parse_id(const Json& config, const char* key, const std::string& where) {
  const std::vector<int64_t> ids = parse_ids(config, key, where);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

void parse_experts(const Json& config, ModelSpec& spec, const std::string& where) {
  if (spec.model_type != kMixture) return;
  spec.num_experts = require<int>(config, "num_experts", where);
  spec.experts_per_token = require<int>(config, "num_experts_per_tok", where);
  spec.moe_intermediate_size = require<int64_t>(config, "moe_intermediate_size", where);
}

void verify_sizes(const ModelSpec& spec, const std::string& where) {
  std::vector<std::pair<const char*, int64_t>> sizes = {
      {"vocab_size", spec.vocab_size},
      {"hidden_size", spec.hidden_size},
      {"intermediate_size", spec.intermediate_size},
      {"num_hidden_layers", spec.num_layers},
      {"num_attention_heads", spec.num_heads},
      {"num_key_value_heads", spec.num_kv_heads},
      {"head_dim", spec.head_dim},
      {"max_position_embeddings", spec.max_position}};
  if (spec.model_type == kMixture) {
    sizes.insert(sizes.end(), {{"num_experts", spec.num_experts},
                               {"num_experts_per_tok", spec.experts_per_token},
                               {"moe_intermediate_size", spec.moe_intermediate_size}});
  }
  for (const auto& [key, size] : sizes) {
    if (size < 1)
      refuse(where, std::string(key) + " must be at least 1, not " + std::to_string(size));
  }
  if (spec.num_heads % spec.num_kv_heads != 0) {
    refuse(where, "num_key_value_heads " + std::to_string(spec.num_kv_heads) +
                      " does not divide num_attention_heads " + std::to_string(spec.num_heads));
  }
  if (spec.experts_per_token > spec.num_experts) {
    refuse(where, "num_experts_per_tok " + std::to_string(spec.experts_per_token) +
                      " is more than num_experts " + std::to_string(spec.num_experts));
  }
  if (spec.head_dim % 2 != 0) {
    refuse(where, "head_dim " + std::to_string(spec.head_dim) + " must be even for RoPE");
  }
}

// transformers' defaults where a config leaves the key out.
int default_head_dim(const ModelSpec& spec) {
  if (spec.model_type == "qwen3" || spec.model_type == kMixture) return 128;
  return spec.num_heads > 0 ? static_cast<int>(spec.hidden_size / spec.num_heads) : 0;
}

Json or_null(const std::optional<int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

Json rope_scaling_json(const std::optional<RopeScaling>& scaling) {
  if (!scaling) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", scaling->factor},
          {"low_freq_factor", scaling->low_freq_factor},
          {"high_freq_factor", scaling->high_freq_factor},
          {"original_max_position_embeddings", scaling->original_max_position}};
}

}  // namespace

ModelSpec parse_model_config(const Json& config, const std::string& where) {
  ModelSpec spec;
  spec.model_type = require<std::string>(config, "model_type", where);
  refuse_quantised(config, where);
  const Family family = family_of(spec.model_type, where);
  spec.vocab_size = require<int64_t>(config, "vocab_size", where);
  spec.hidden_size = require<int64_t>(config, "hidden_size", where);
  spec.intermediate_size = require<int64_t>(config, "intermediate_size", where);
  spec.num_layers = require<int>(config, "num_hidden_layers", where);
  spec.num_heads = require<int>(config, "num_attention_heads", where);
  spec.num_kv_heads = spec.model_type == "llama"
                          ? optional(config, "num_key_value_heads", spec.num_heads, where)
                          : require<int>(config, "num_key_value_heads", where);
  spec.head_dim = optional(config, "head_dim", default_head_dim(spec), where);
  spec.max_position = require<int64_t>(config, "max_position_embeddings", where);
  spec.rms_norm_eps = optional(config, "rms_norm_eps", 1e-6, where);
  spec.head = parse_head(config, family, where);
  spec.tie_word_embeddings =
      spec.head == Head::kLanguageModel && optional(config, "tie_word_embeddings", false, where);
  spec.qkv_bias = spec.model_type == "qwen2";
  spec.qk_norm = spec.model_type == "qwen3" || spec.model_type == kMixture;
  parse_experts(config, spec, where);
  spec.eos_token_ids = parse_ids(config, "eos_token_id", where);
  spec.bos_token_id = parse_id(config, "bos_token_id", where);
  spec.pad_token_id = parse_id(config, "pad_token_id", where);
  parse_rope(config, spec, where);
  verify_sizes(spec, where);
  refuse_unsupported(config, spec, where);
  return spec;
}

// Where names changed (rope_theta, torch_dtype), the old ones: transformers 4 and 5 both read them.
Json to_hf_config(const ModelSpec& spec, DType dtype) {
  const Family family = family_of(spec.model_type, "to_hf_config");
  const bool scalar = spec.head == Head::kScalar;
  Json config = {{"architectures", Json::array({family.class_prefix +
                                                (scalar ? kScalarClass : kLanguageModelClass)})},
                 {"model_type", spec.model_type},
                 {"torch_dtype", to_string(dtype)},
                 {"vocab_size", spec.vocab_size},
                 {"hidden_size", spec.hidden_size},
                 {"intermediate_size", spec.intermediate_size},
                 {"num_hidden_layers", spec.num_layers},
                 {"num_attention_heads", spec.num_heads},
                 {"num_key_value_heads", spec.num_kv_heads},
                 {"head_dim", spec.head_dim},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", spec.max_position},
                 {"rms_norm_eps", spec.rms_norm_eps},
                 {"rope_theta", spec.rope_theta},
                 {"rope_scaling", rope_scaling_json(spec.rope_scaling)},
                 {"tie_word_embeddings", spec.tie_word_embeddings},
                 {"bos_token_id", or_null(spec.bos_token_id)},
                 {"pad_token_id", or_null(spec.pad_token_id)},
                 {"sliding_window", nullptr}};
  const auto& eos = spec.eos_token_ids;
  config["eos_token_id"] = eos.empty() ? Json(nullptr) : eos.size() == 1 ? Json(eos[0]) : Json(eos);
  if (spec.num_experts > 0) {
    config["num_experts"] = spec.num_experts;
    config["num_experts_per_tok"] = spec.experts_per_token;
    config["moe_intermediate_size"] = spec.moe_intermediate_size;
  }
  if (scalar) {
    config["id2label"] = Json::object({{"0", "LABEL_0"}});
    config["label2id"] = Json::object({{"LABEL_0", 0}});
  }
  return config;
}

}  // namespace nereus
