// Real published configs, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "nereus/core/model/model_spec.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As published with each model, without the keys that do not matter here.
const char* const kLlama31 = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0,
  "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
  "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "vocab_size": 128256})";
const char* const kMistral = R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "sliding_window": null, "vocab_size": 32768})";
const char* const kQwen2 = R"({"architectures": ["Qwen2ForCausalLM"], "bos_token_id": 151643,
  "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864,
  "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
  "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
  "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})";
const char* const kQwen3 = R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
  "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16,
  "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
  "use_sliding_window": false, "vocab_size": 151936})";
const char* const kQwen3Moe = R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
  "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings":
  40960, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
  "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
  "use_sliding_window": false, "vocab_size": 151936})";
const char* const kStories = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
  "intermediate_size": 172, "max_position_embeddings": 512, "model_type": "llama",
  "num_attention_heads": 8, "num_hidden_layers": 5, "num_key_value_heads": 4, "vocab_size": 512,
  "rms_norm_eps": 1e-05, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})";

ModelSpec parse(const char* text) { return parse_model_config(Json::parse(text), "config.json"); }

// The message with which `text`, changed by `patch` (a JSON merge patch), is refused.
std::string refusal(const char* text, const Json& patch) {
  Json config = Json::parse(text);
  config.merge_patch(patch);
  try {
    parse_model_config(config, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_THAT(error.what(), testing::StartsWith("config.json: "));
    return error.what();
  }
  return "accepted";
}

TEST(HfConfig, Llama31) {
  const ModelSpec spec = parse(kLlama31);
  EXPECT_EQ(parameter_count(spec), 8'030'261'248);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.rope_theta, 500000);
  EXPECT_EQ(spec.rope_scaling, (RopeScaling{8, 1, 4, 8192}));
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_FALSE(spec.qkv_bias || spec.qk_norm || spec.tie_word_embeddings);
}

TEST(HfConfig, MistralQwen2Qwen3AndStories) {
  EXPECT_EQ(parameter_count(parse(kMistral)), 7'248'023'552);
  const ModelSpec qwen2 = parse(kQwen2);
  EXPECT_EQ(parameter_count(qwen2), 494'032'768);
  EXPECT_TRUE(qwen2.qkv_bias && qwen2.tie_word_embeddings);
  const ModelSpec qwen3 = parse(kQwen3);
  EXPECT_EQ(parameter_count(qwen3), 596'049'920);
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
  const ModelSpec stories = parse(kStories);
  EXPECT_EQ(stories.head_dim, 8);
  EXPECT_EQ(stories.rms_norm_eps, 1e-5);
  EXPECT_THAT(stories.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(stories.pad_token_id, std::nullopt);
}

TEST(HfConfig, Qwen3Moe) {
  const ModelSpec spec = parse(kQwen3Moe);
  EXPECT_EQ(parameter_count(spec), 30'532'122'624);
  EXPECT_TRUE(spec.qk_norm);
  EXPECT_EQ(spec.num_experts, 128);
  EXPECT_EQ(spec.experts_per_token, 8);
  EXPECT_EQ(spec.moe_intermediate_size, 768);
  EXPECT_THAT(refusal(kQwen3Moe, {{"mlp_only_layers", {0}}}), HasSubstr("layers without experts"));
  EXPECT_THAT(refusal(kQwen3Moe, {{"decoder_sparse_step", 2}}),
              HasSubstr("layers without experts"));
  EXPECT_THAT(refusal(kQwen3Moe, {{"num_experts_per_tok", 129}}),
              HasSubstr("num_experts_per_tok 129 is more than num_experts 128"));
  EXPECT_THAT(refusal(kQwen3Moe, {{"moe_intermediate_size", 0}}),
              HasSubstr("moe_intermediate_size must be at least 1, not 0"));
  EXPECT_EQ(parse(kQwen3).num_experts, 0);
}

TEST(HfConfig, RoundTrip) {
  for (const char* text : {kLlama31, kMistral, kQwen2, kQwen3, kQwen3Moe, kStories}) {
    for (const ModelSpec& spec : {parse(text), as_critic(parse(text))}) {
      const Json config = to_hf_config(spec, DType::kBFloat16);
      EXPECT_EQ(parse_model_config(config, "x"), spec) << config.dump(1);
    }
  }
}

TEST(HfConfig, HeadDimDefaultsAsInTransformers) {
  Json config = Json::parse(kQwen3);
  config.erase("head_dim");
  EXPECT_EQ(parse_model_config(config, "x").head_dim, 128);
  config["model_type"] = "qwen2";
  config["architectures"] = {"Qwen2ForCausalLM"};
  EXPECT_EQ(parse_model_config(config, "x").head_dim, 1024 / 16);
}

TEST(HfConfig, WritesTransformersClassNames) {
  const ModelSpec spec = parse(kStories);
  EXPECT_EQ(to_hf_config(spec, DType::kFloat32).at("architectures").dump(),
            R"(["LlamaForCausalLM"])");
  const Json critic = to_hf_config(as_critic(spec), DType::kFloat32);
  EXPECT_EQ(critic.at("architectures").dump(), R"(["LlamaForSequenceClassification"])");
  EXPECT_EQ(critic.at("id2label").dump(), R"({"0":"LABEL_0"})");
  EXPECT_EQ(critic.at("torch_dtype"), "float32");
}

TEST(HfConfig, ReadsRopeAsTransformers5WritesIt) {
  Json config = Json::parse(kLlama31);
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config.erase("rope_scaling");
  config.erase("rope_theta");
  EXPECT_EQ(parse_model_config(config, "x"), parse(kLlama31));
}

TEST(HfConfig, MissingKeysAndUnknownModels) {
  EXPECT_THAT(refusal(kQwen3, {{"vocab_size", nullptr}}), HasSubstr("vocab_size"));
  EXPECT_THAT(refusal(kQwen3, {{"model_type", "gemma3"}}),
              HasSubstr("\"gemma3\" is not supported; supported: llama, mistral, qwen2, qwen3"));
  EXPECT_THAT(refusal(kQwen3, {{"architectures", {"Qwen3ForTokenClassification"}}}),
              HasSubstr("supported: Qwen3ForCausalLM, Qwen3ForSequenceClassification"));
}

TEST(HfConfig, QuantisedCheckpointsAreRefused) {
  for (const char* method : {"gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors"}) {
    EXPECT_THAT(refusal(kQwen2, {{"quantization_config", {{"quant_method", method}}}}),
                AllOf(HasSubstr(std::string("quantization_config (") + method + ")"),
                      HasSubstr("use the model that it was made from")));
  }
  EXPECT_THAT(refusal(kQwen2, {{"quantization_config", {{"load_in_4bit", true}}}}),
              HasSubstr("quantization_config: a quantised checkpoint"));
  Json config = Json::parse(kQwen2);
  config["quantization_config"] = nullptr;
  EXPECT_EQ(parse_model_config(config, "x"), parse(kQwen2));
}

TEST(HfConfig, UnsupportedFeatures) {
  EXPECT_THAT(refusal(kLlama31, {{"hidden_act", "gelu"}}), HasSubstr("gelu"));
  EXPECT_THAT(refusal(kLlama31, {{"attention_bias", true}}), HasSubstr("attention_bias"));
  EXPECT_THAT(refusal(kLlama31, {{"mlp_bias", true}}), HasSubstr("mlp_bias"));
  EXPECT_THAT(refusal(kLlama31, {{"rope_scaling", {{"rope_type", "yarn"}}}}),
              HasSubstr("\"yarn\" is not supported; supported: default, llama3"));
  EXPECT_THAT(refusal(kStories, {{"rope_parameters", {{"rope_type", "linear"}}}}),
              HasSubstr("linear"));
  EXPECT_THAT(
      refusal(kStories, {{"rope_scaling", {{"type", "dynamic"}}}, {"rope_parameters", nullptr}}),
      HasSubstr("dynamic"));
  EXPECT_THAT(refusal(kLlama31, {{"architectures", {"LlamaForSequenceClassification"}},
                                 {"id2label", {{"0", "bad"}, {"1", "good"}}}}),
              HasSubstr("2 labels"));
}

TEST(HfConfig, SlidingWindowOnlyWhereItIsInUse) {
  EXPECT_THAT(refusal(kMistral, {{"sliding_window", 4096}}), HasSubstr("sliding_window 4096"));
  Json old_mistral = Json::parse(kMistral);
  old_mistral.erase("sliding_window");
  EXPECT_THAT(refusal(old_mistral.dump().c_str(), Json::object()), HasSubstr("4096"));
  EXPECT_EQ(refusal(kMistral, {{"sliding_window", 32768}}), "accepted");
  EXPECT_EQ(refusal(kQwen2, {{"sliding_window", 4096}}), "accepted");
  EXPECT_THAT(refusal(kQwen2, {{"sliding_window", 4096}, {"use_sliding_window", true}}),
              HasSubstr("sliding_window"));
  EXPECT_THAT(refusal(kQwen2, {{"layer_types", {"full_attention", "sliding_attention"}}}),
              HasSubstr("sliding_attention"));
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Json as_read(const ModelSpec& spec) {
  const auto id = [](const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); };
  Json scaling;
  if (spec.rope_scaling) {
    scaling = {spec.rope_scaling->factor, spec.rope_scaling->low_freq_factor,
               spec.rope_scaling->high_freq_factor, spec.rope_scaling->original_max_position};
  }
  return {{"vocab_size", spec.vocab_size},
          {"hidden_size", spec.hidden_size},
          {"intermediate_size", spec.intermediate_size},
          {"num_layers", spec.num_layers},
          {"num_heads", spec.num_heads},
          {"num_kv_heads", spec.num_kv_heads},
          {"head_dim", spec.head_dim},
          {"max_position", spec.max_position},
          {"rms_norm_eps", spec.rms_norm_eps},
          {"tie_word_embeddings", spec.tie_word_embeddings},
          {"rope_theta", spec.rope_theta},
          {"rope_scaling", scaling},
          {"eos_token_ids", spec.eos_token_ids},
          {"bos_token_id", id(spec.bos_token_id)},
          {"pad_token_id", id(spec.pad_token_id)}};
}

// tests/parity/config_cases.py wrote down what transformers reads in these files.
TEST(HfConfig, SpellingsOfTransformers4And5) {
  const auto file =
      std::filesystem::path(NEREUS_SOURCE_DIR) / "src/nereus/core/model/testdata/configs.json";
  const Json cases = parse_json(text_of(file), file.string());
  EXPECT_GT(cases.size(), 100U);
  for (const Json& entry : cases) {
    const std::string text = entry.at("config").dump();
    const auto name = entry.at("name").get<std::string>();
    if (entry.contains("refusal")) {
      EXPECT_THAT(refusal(text.c_str(), Json::object()),
                  HasSubstr(entry.at("refusal").get<std::string>()))
          << name;
      continue;
    }
    ASSERT_EQ(refusal(text.c_str(), Json::object()), "accepted") << name;
    EXPECT_EQ(as_read(parse(text.c_str())), entry.at("spec")) << name;
  }
}

TEST(HfConfig, ImpossibleSizes) {
  EXPECT_THAT(refusal(kQwen3, {{"num_key_value_heads", 5}}),
              HasSubstr("5 does not divide num_attention_heads 16"));
  EXPECT_THAT(refusal(kQwen3, {{"num_key_value_heads", 0}}), HasSubstr("at least 1, not 0"));
  EXPECT_THAT(refusal(kQwen3, {{"head_dim", 7}}), HasSubstr("head_dim 7"));
  EXPECT_THAT(refusal(kStories, {{"hidden_size", 65}}),
              HasSubstr("hidden_size 65 is no multiple of num_attention_heads 8"));
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* value : {"-2", "0", "4.9", "4.0", "true", "\"4\"", "[4]", "1e30",
                              "9223372036854775807", "4294967296"}) {
      EXPECT_THAT(refusal(kQwen3, {{key, Json::parse(value)}}), HasSubstr(key)) << value;
    }
  }
  EXPECT_THAT(refusal(kQwen3, {{"vocab_size", 2147483648}, {"hidden_size", 2147483648}}),
              HasSubstr("parameters; at most"));
}

TEST(HfConfig, ImpossibleNumbers) {
  for (const char* value : {"0", "-1e-6", "1", "true", "\"1e-6\"", "[]"}) {
    EXPECT_THAT(refusal(kStories, {{"rms_norm_eps", Json::parse(value)}}),
                HasSubstr("rms_norm_eps"))
        << value;
  }
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id"}) {
    for (const char* value : {"512", "-2", "1.0", "true", "\"2\"", "[1, 512]", "{}"}) {
      const bool of_one = std::string_view(key) != "eos_token_id" && *value == '[';
      if (of_one) continue;
      EXPECT_THAT(refusal(kStories, {{key, Json::parse(value)}}), HasSubstr(key)) << value;
    }
  }
  EXPECT_THAT(refusal(kStories, {{"eos_token_id", -1}}), HasSubstr("eos_token_id -1 is no token"));
  EXPECT_EQ(refusal(kStories, {{"pad_token_id", -1}}), "accepted");
}

TEST(HfConfig, ImpossibleRope) {
  for (const char* theta : {"0", "-1", "\"a\"", "true"}) {
    EXPECT_THAT(refusal(kLlama31, {{"rope_theta", Json::parse(theta)}}), HasSubstr("rope_theta"));
    EXPECT_THAT(refusal(kStories, {{"rope_parameters", {{"rope_theta", Json::parse(theta)}}}}),
                HasSubstr("rope_theta"));
  }
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    for (const char* value : {"0", "-4", "true", "\"8\"", "[8]"}) {
      EXPECT_THAT(refusal(kLlama31, {{"rope_scaling", {{key, Json::parse(value)}}}}),
                  HasSubstr(key))
          << value;
    }
  }
  EXPECT_THAT(refusal(kLlama31, {{"rope_scaling", {{"high_freq_factor", 1}}}}),
              HasSubstr("high_freq_factor must be a number above 1"));
  EXPECT_THAT(refusal(kLlama31, {{"rope_scaling", {{"factor", nullptr}}}}), HasSubstr("factor"));
  EXPECT_THAT(refusal(kLlama31, {{"rope_scaling", {{"rope_type", 3}}}}), HasSubstr("rope_type"));
  EXPECT_THAT(refusal(kStories, {{"rope_parameters", 7}}), HasSubstr("must be objects"));
}

}  // namespace
}  // namespace nereus
