#include "nereus/data/hf_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "nereus/data/files.h"
#include "nereus/data/testing.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kQProj = "model.layers.1.self_attn.q_proj.weight";

std::string refusal(const std::filesystem::path& directory, const ModelSpec& spec,
                    DType dtype = DType::kFloat32) {
  return error_message(ErrorCode::kInvalidInput, [&] { read_model(directory, spec, dtype); });
}

void expect_equal(const TensorMap& a, const TensorMap& b) {
  ASSERT_FALSE(a.empty());
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

TEST(HfModel, RoundTrip) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  write_text(directory / "from" / "tokenizer.json", "{}");
  write_model(directory / "to", spec, DType::kFloat32, weights, {.tokenizer = directory / "from"});

  EXPECT_EQ(read_model_spec(directory / "to"), spec);
  expect_equal(read_model(directory / "to", spec, DType::kFloat32), weights);
  EXPECT_EQ(read_text(directory / "to" / "tokenizer.json"), "{}");
  const Json generation = parse_json(read_text(directory / "to" / "generation_config.json"), "");
  EXPECT_EQ(generation["eos_token_id"], Json({1, 2}));
}

void write_configs(const std::filesystem::path& directory, const std::string& generation) {
  write_text(directory / "config.json", to_hf_config(tiny_llama(), DType::kFloat32).dump());
  write_text(directory / kGenerationConfig, generation);
}

// tiny_llama()'s config.json says 1 and 2.
TEST(HfModel, ResponsesEndWhereGenerationConfigSays) {
  const auto directory = fresh_directory();
  const std::vector<std::pair<const char*, std::vector<int64_t>>> cases = {
      {R"({"eos_token_id": [3, 10]})", {3, 10}}, {R"({"eos_token_id": 0})", {0}},
      {R"({"eos_token_id": null})", {1, 2}},     {R"({"eos_token_id": []})", {1, 2}},
      {R"({"temperature": 0.6})", {1, 2}},
  };
  for (const auto& [generation, ids] : cases) {
    write_configs(directory, generation);
    EXPECT_EQ(read_model_spec(directory).eos_token_ids, ids) << generation;
  }
}

TEST(HfModel, BadGenerationConfigNamesFileAndValue) {
  const auto directory = fresh_directory();
  for (const char* value : {"1.5", "true", R"("</s>")", "-1", "11", "[1,11]", R"([1,"2"])",
                            "18446744073709551615", R"({"id":1})"}) {
    write_configs(directory, std::string(R"({"eos_token_id":)") + value + "}");
    EXPECT_THAT(
        error_message(ErrorCode::kInvalidInput, [&] { read_model_spec(directory); }),
        AllOf(HasSubstr((directory / kGenerationConfig).string()),
              HasSubstr(std::string("eos_token_id is ") + value + ";"), HasSubstr("size of 11")));
  }
  for (const char* content : {"[1]", "{"}) {
    write_configs(directory, content);
    EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_model_spec(directory); }),
                HasSubstr(kGenerationConfig));
  }
}

TEST(HfModel, ExportKeepsGenerationConfig) {
  const auto directory = fresh_directory();
  const std::string generation =
      "{\"temperature\": 0.6, \"top_p\": 0.95, \"eos_token_id\": [3, 10]}\n";
  write_configs(directory / "from", generation);
  const ModelSpec spec = read_model_spec(directory / "from");
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  write_model(directory / "to", spec, DType::kFloat32, weights, {.model = directory / "from"});
  EXPECT_EQ(read_text(directory / "to" / kGenerationConfig), generation);
  EXPECT_EQ(read_model_spec(directory / "to"), spec);
}

TEST(HfModel, ShardsWithIndexHoldTheSameTensors) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  write_model(directory, spec, DType::kFloat32, weights, {});
  write_model(directory, spec, DType::kFloat32, weights, {}, Bytes(1000));
  EXPECT_FALSE(std::filesystem::exists(directory / "model.safetensors"));
  const Json index = parse_json(read_text(directory / "model.safetensors.index.json"), "");
  EXPECT_EQ(index["metadata"]["total_size"], 4 * parameter_count(spec));
  expect_equal(read_model(directory, spec, DType::kFloat32), weights);

  const std::string shard = index["weight_map"][kQProj];
  std::filesystem::remove(directory / shard);
  EXPECT_THAT(refusal(directory, spec), HasSubstr(shard));
}

TEST(HfModel, HalfPrecisionIsConverted) {
  const ModelSpec spec = tiny_llama();
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const auto directory = fresh_directory();
    write_model(directory, spec, dtype, weights, {});
    const at::Tensor read = read_model(directory, spec, DType::kFloat32).at(kQProj);
    EXPECT_EQ(read.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(read, weights.at(kQProj).to(scalar_type(dtype)).to(at::kFloat)));
  }
}

TEST(HfModel, BodyWithoutPrefixAndCriticWithoutScore) {
  const auto directory = fresh_directory();
  const ModelSpec critic = as_critic(tiny_llama());
  const TensorMap weights = random_model(critic, DType::kFloat32, 7);
  TensorMap bare;
  for (const auto& [name, tensor] : weights) {
    if (name.starts_with("model.")) bare[name.substr(6)] = tensor;
  }
  write_safetensors(directory / "model.safetensors", bare);
  expect_equal(read_model(directory, critic, DType::kFloat32), weights);
}

TEST(HfModel, ARewardModelMustHaveItsScore) {
  const auto directory = fresh_directory();
  const ModelSpec spec = as_critic(tiny_llama());
  const TensorMap drawn = random_model(spec, DType::kFloat32, 7, ScoreHead::kTrained);
  EXPECT_GT(drawn.at("score.weight").abs().max().item<double>(), 0);
  write_safetensors(directory / "model.safetensors", drawn);
  expect_equal(read_model(directory, spec, DType::kFloat32, ScoreHead::kTrained), drawn);
  TensorMap bare = drawn;
  bare.erase("score.weight");
  write_safetensors(directory / "model.safetensors", bare);
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidInput,
                    [&] { read_model(directory, spec, DType::kFloat32, ScoreHead::kTrained); }),
      HasSubstr("1 tensors of config.json are missing: score.weight"));
}

TEST(HfModel, WrongShapeNamesBothShapes) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  TensorMap weights = random_model(spec, DType::kFloat32, 7);
  weights[kQProj] = at::zeros({8, 9});
  write_safetensors(directory / "model.safetensors", weights);
  EXPECT_THAT(refusal(directory, spec), AllOf(HasSubstr(kQProj), HasSubstr("[8,9]"),
                                              HasSubstr("[8,8]"), HasSubstr("model.safetensors")));
}

TEST(HfModel, NonFiniteWeightsAreCounted) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  TensorMap weights = random_model(spec, DType::kFloat32, 7);
  weights[kQProj][0][1] = std::numeric_limits<float>::quiet_NaN();
  weights[kQProj][2][3] = std::numeric_limits<float>::infinity();
  write_safetensors(directory / "model.safetensors", weights);
  EXPECT_THAT(refusal(directory, spec), AllOf(HasSubstr(kQProj), HasSubstr("2 of 64")));

  weights[kQProj] = at::full({8, 8}, 1e30);  // finite, but not in float16
  write_safetensors(directory / "model.safetensors", weights);
  EXPECT_THAT(refusal(directory, spec, DType::kFloat16), HasSubstr("64 of 64"));
}

TEST(HfModel, MissingTensorsAreNamed) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  TensorMap weights = random_model(spec, DType::kFloat32, 7);
  weights.erase("lm_head.weight");
  write_safetensors(directory / "model.safetensors", weights);
  EXPECT_THAT(refusal(directory, spec), HasSubstr("lm_head.weight"));
  ModelSpec tied = spec;
  tied.tie_word_embeddings = true;
  EXPECT_EQ(read_model(directory, tied, DType::kFloat32).size(), weights.size());
}

TEST(HfModel, MissingFilesAreNamed) {
  const auto directory = fresh_directory();
  EXPECT_THAT(refusal(directory, tiny_llama()), HasSubstr("model.safetensors.index.json"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_model_spec(directory); }),
              HasSubstr("config.json"));
}

TEST(HfModel, RandomWeightsDependOnSeedAndNameOnly) {
  const ModelSpec spec = tiny_llama();
  ModelSpec deeper = spec;
  deeper.num_layers = 3;
  const TensorMap a = random_model(spec, DType::kFloat32, 1);
  const TensorMap b = random_model(deeper, DType::kFloat32, 1);
  const TensorMap c = random_model(spec, DType::kFloat32, 2);
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  EXPECT_FALSE(at::equal(a.at(kQProj), c.at(kQProj)));
  EXPECT_FALSE(at::equal(a.at(kQProj), a.at("model.layers.0.self_attn.q_proj.weight")));
  EXPECT_TRUE(at::equal(a.at("model.norm.weight"), at::ones({8})));
  EXPECT_NEAR(a.at("model.embed_tokens.weight").std().item<double>(), 0.02, 0.005);
}

// Large tensors are drawn in parts: no part repeats another, and the dtype does not matter.
TEST(HfModel, LargeRandomWeightsAreDrawnInParts) {
  ModelSpec spec = tiny_llama();
  spec.vocab_size = 10'000;  // × 8: three parts
  const std::string name = "model.embed_tokens.weight";
  const at::Tensor whole = random_model(spec, DType::kFloat32, 1).at(name);
  EXPECT_NEAR(whole.std().item<double>(), 0.02, 5e-4);
  EXPECT_NEAR(whole.mean().item<double>(), 0, 5e-4);
  const at::Tensor flat = whole.view(-1);
  constexpr int64_t kPart = 1 << 15;
  EXPECT_FALSE(at::equal(flat.narrow(0, 0, 100), flat.narrow(0, kPart, 100)));
  const at::Tensor half = random_model(spec, DType::kBFloat16, 1).at(name);
  EXPECT_TRUE(at::equal(half, whole.to(at::kBFloat16)));
}

}  // namespace
}  // namespace nereus
