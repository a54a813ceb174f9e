// Reading and writing config.json, with the defaults of transformers' configuration classes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nereus/core/base/text.h"
#include "nereus/core/model/model_spec.h"

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
constexpr int64_t kMostPositions = (int64_t{1} << 31) - 1;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, where + ": " + what);
}

std::string number_text(double value) { return Json(value).dump(); }

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

// Where a layer looks at a window only. As in transformers, mistral's window (4096 if the key is
// missing) is in use unless it is null; qwen's has a switch, and in qwen2 and qwen3 layers below
// max_window_layers, or those that layer_types calls so, look at everything all the same.
void refuse_windows(const Json& config, const ModelSpec& spec, const std::string& where) {
  const bool mistral = spec.model_type == "mistral", by_layer = spec.model_type != kMixture;
  const auto types = optional<std::vector<std::string>>(config, "layer_types", {}, where);
  for (const std::string& type : types) {
    if (type != "full_attention") {
      refuse(where, "layer type \"" + type + "\" is not supported; supported: full_attention");
    }
  }
  const bool qwen = spec.model_type.starts_with("qwen");
  if (qwen && by_layer && !types.empty() && std::ssize(types) != spec.num_layers) {
    refuse(where, "layer_types names " + std::to_string(types.size()) + " layers, but " +
                      "num_hidden_layers is " + std::to_string(spec.num_layers));
  }
  if (!mistral && !(qwen && optional(config, "use_sliding_window", false, where))) return;
  constexpr int64_t kWindow = 4096;
  constexpr int kFullLayers = 28;
  const int64_t fallback = config.contains("sliding_window") ? 0 : kWindow;
  const auto window = optional<int64_t>(config, "sliding_window", fallback, where);
  const bool all_full = qwen && by_layer &&
                        (!types.empty() || spec.num_layers <= optional(config, "max_window_layers",
                                                                       kFullLayers, where));
  if (window > 0 && window < spec.max_position && !all_full) {
    refuse(where, "sliding_window " + std::to_string(window) + " below max_position_embeddings " +
                      std::to_string(spec.max_position) +
                      " is not supported; only full attention is");
  }
}

// Features that would change the result and that we do not compute.
void refuse_unsupported(const Json& config, const ModelSpec& spec, const std::string& where) {
  const auto activation = optional<std::string>(config, "hidden_act", "silu", where);
  if (activation != "silu" && activation != "swish") {  // two names of one function
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
  refuse_windows(config, spec, where);
}

// Factors that give every frequency a finite number above 0.
void verify_rope(const ModelSpec& spec, const std::string& where) {
  const auto require_above = [&](const char* key, double value, double least) {
    if (std::isfinite(value) && value > least) return;
    refuse(where, std::string("RoPE: ") + key + " must be a number above " + number_text(least) +
                      ", not " + number_text(value));
  };
  require_above("rope_theta", spec.rope_theta, 0);
  if (!spec.rope_scaling) return;
  const RopeScaling& scaling = *spec.rope_scaling;
  require_above("factor", scaling.factor, 0);
  require_above("low_freq_factor", scaling.low_freq_factor, 0);
  require_above("high_freq_factor", scaling.high_freq_factor, scaling.low_freq_factor);
  require_above("original_max_position_embeddings", scaling.original_max_position, 0);
}

RopeScaling parse_llama3_scaling(const Json& rope, const ModelSpec& spec,
                                 const std::string& where) {
  const int longest = static_cast<int>(std::min<int64_t>(spec.max_position, kMostPositions));
  return {
      .factor = require<double>(rope, "factor", where),
      .low_freq_factor = require<double>(rope, "low_freq_factor", where),
      .high_freq_factor = require<double>(rope, "high_freq_factor", where),
      .original_max_position = optional(rope, "original_max_position_embeddings", longest, where)};
}

// transformers 5 writes one "rope_parameters"; before it, "rope_theta" and "rope_scaling", which
// count if both are there.
void parse_rope(const Json& config, ModelSpec& spec, const std::string& where) {
  const Json parameters = optional(config, "rope_parameters", Json::object(), where);
  const Json scaling = optional(config, "rope_scaling", Json::object(), where);
  const Json& rope = scaling.empty() ? parameters : scaling;
  if (!rope.is_object()) {
    refuse(where, "rope_scaling and rope_parameters must be objects, not " + shown_json(rope));
  }
  for (const auto& [key, value] : rope.items()) {
    if (value.is_object()) refuse(where, "RoPE of its own for \"" + key + "\" is not supported");
  }
  const double theta = optional(config, "rope_theta", 10000.0, where);
  spec.rope_theta = optional(rope, "rope_theta", theta, where);
  const double of_all = optional(config, "partial_rotary_factor", 1.0, where);
  if (optional(rope, "partial_rotary_factor", of_all, where) != 1) {
    refuse(where, "partial_rotary_factor other than 1 is not supported");
  }
  const auto old_type = optional<std::string>(rope, "type", "default", where);
  const auto type = optional(rope, "rope_type", old_type, where);
  if (type == "llama3") {
    spec.rope_scaling = parse_llama3_scaling(rope, spec, where);
  } else if (type != "default") {
    refuse(where, "RoPE scaling \"" + type + "\" is not supported; supported: default, llama3");
  }
  verify_rope(spec, where);
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

// What a number of a config may be: far more than any model has, so little that products of them
// are numbers too.
constexpr int64_t kMostOfSome = 1 << 16;  // layers, heads, experts and their like
constexpr int64_t kMostRows = int64_t{1} << 31;
constexpr double kMostParameters = 1e15;

struct Size {
  const char* key;
  int64_t value;
  int64_t most;
};

std::vector<Size> sizes_of(const ModelSpec& spec) {
  std::vector<Size> sizes = {{"vocab_size", spec.vocab_size, kMostRows},
                             {"hidden_size", spec.hidden_size, kMostRows},
                             {"intermediate_size", spec.intermediate_size, kMostRows},
                             {"num_hidden_layers", spec.num_layers, kMostOfSome},
                             {"num_attention_heads", spec.num_heads, kMostOfSome},
                             {"num_key_value_heads", spec.num_kv_heads, kMostOfSome},
                             {"head_dim", spec.head_dim, kMostOfSome},
                             {"max_position_embeddings", spec.max_position, kMostPositions}};
  if (spec.model_type == kMixture) {
    sizes.insert(sizes.end(), {{"num_experts", spec.num_experts, kMostOfSome},
                               {"num_experts_per_tok", spec.experts_per_token, kMostOfSome},
                               {"moe_intermediate_size", spec.moe_intermediate_size, kMostRows}});
  }
  return sizes;
}

// About, in doubles, which do not overflow.
double parameters_of(const ModelSpec& spec) {
  const auto hidden = static_cast<double>(spec.hidden_size);
  const double heads = static_cast<double>(spec.num_heads) + spec.num_kv_heads;
  const double dense = 3 * static_cast<double>(spec.intermediate_size);
  const double experts = 3.0 * spec.num_experts * static_cast<double>(spec.moe_intermediate_size);
  const double layer = 2 * heads * spec.head_dim + (spec.num_experts > 0 ? experts : dense);
  return hidden * (2 * static_cast<double>(spec.vocab_size) + spec.num_layers * layer);
}

void verify_sizes(const ModelSpec& spec, const std::string& where) {
  for (const auto& [key, size, most] : sizes_of(spec)) {
    if (size < 1)
      refuse(where, std::string(key) + " must be at least 1, not " + std::to_string(size));
    if (size > most) {
      refuse(where, std::string(key) + " must be at most " + std::to_string(most) + ", not " +
                        std::to_string(size));
    }
  }
  if (parameters_of(spec) > kMostParameters) {
    refuse(where, "the sizes make a model of " + number_text(parameters_of(spec)) +
                      " parameters; at most " + number_text(kMostParameters) + " are possible");
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

void verify_numbers(const ModelSpec& spec, const std::string& where) {
  if (!(spec.rms_norm_eps > 0 && spec.rms_norm_eps < 1)) {
    refuse(where,
           "rms_norm_eps must be above 0 and below 1, not " + number_text(spec.rms_norm_eps));
  }
  const auto verify_id = [&](const char* key, int64_t id) {
    if (id >= 0 && id < spec.vocab_size) return;
    refuse(where, std::string(key) + " " + std::to_string(id) + " is no token: vocab_size is " +
                      std::to_string(spec.vocab_size));
  };
  for (const int64_t id : spec.eos_token_ids) verify_id("eos_token_id", id);
  if (spec.bos_token_id) verify_id("bos_token_id", *spec.bos_token_id);
  if (spec.pad_token_id) verify_id("pad_token_id", *spec.pad_token_id);
}

// transformers' defaults where a config leaves the key out, or has null.
int default_head_dim(const Json& config, const ModelSpec& spec, const std::string& where) {
  if (spec.model_type == "qwen3") return 128;
  if (spec.num_heads < 1 || !optional(config, "head_dim", Json(), where).is_null()) return 0;
  if (spec.hidden_size % spec.num_heads != 0) {
    refuse(where, "hidden_size " + std::to_string(spec.hidden_size) +
                      " is no multiple of num_attention_heads " + std::to_string(spec.num_heads) +
                      ", and there is no head_dim");
  }
  return static_cast<int>(std::min(spec.hidden_size / spec.num_heads, kMostPositions));
}

int default_kv_heads(const Json& config, const ModelSpec& spec) {
  if (spec.model_type == "llama" || config.contains("num_key_value_heads")) return spec.num_heads;
  if (spec.model_type == "mistral") return 8;
  return spec.model_type == kMixture ? 4 : 32;
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
  spec.num_kv_heads =
      optional(config, "num_key_value_heads", default_kv_heads(config, spec), where);
  spec.head_dim = optional(config, "head_dim", default_head_dim(config, spec, where), where);
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
  if (spec.pad_token_id == -1) spec.pad_token_id.reset();  // the first Llama's way to have none
  verify_sizes(spec, where);
  verify_numbers(spec, where);
  parse_rope(config, spec, where);
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
