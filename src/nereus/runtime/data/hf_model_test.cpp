#include "nereus/runtime/data/hf_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <limits>

#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/testing.h"

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

TEST(HfModel, SurplusTensorsAreNamed) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  const auto with = [&](const std::string& name) {
    TensorMap more = weights;
    more[name] = at::zeros({2});
    write_safetensors(directory / "model.safetensors", more);
  };
  for (const char* name :
       {"model.layers.2.mlp.up_proj.weight", "layers.2.mlp.up_proj.weight", "norm.weight",
        "model.layers.0.self_attn.q_proj.bias", "lm_head.bias", "x"}) {
    with(name);
    EXPECT_THAT(refusal(directory, spec), AllOf(HasSubstr(name), HasSubstr("1 tensors")));
  }
  for (const char* name :
       {"model.layers.0.self_attn.rotary_emb.inv_freq", "score.weight", "v_head.summary.weight"}) {
    with(name);
    expect_equal(read_model(directory, spec, DType::kFloat32), weights);
  }
  TensorMap untied = weights;  // transformers ties what config.json ties
  write_safetensors(directory / "model.safetensors", untied);
  ModelSpec tied = spec;
  tied.tie_word_embeddings = true;
  EXPECT_EQ(read_model(directory, tied, DType::kFloat32).size(), weights.size() - 1);
}

TEST(HfModel, AnIndexNamesFilesOfItsDirectoryOnly) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  write_safetensors(directory / "secret.safetensors", weights);
  const auto index_with = [&](const std::string& name) {
    Json map = Json::object();
    for (const auto& [tensor, value] : weights) map[tensor] = name;
    write_text(directory / "model" / "model.safetensors.index.json",
               Json{{"weight_map", map}}.dump());
  };
  const std::string absolute = (directory / "secret.safetensors").string();
  for (const std::string& name :
       {std::string("../secret.safetensors"), absolute, std::string("a/../../secret.safetensors"),
        std::string(".."), std::string(""), std::string("secret\0.safetensors", 19)}) {
    index_with(name);
    EXPECT_THAT(refusal(directory / "model", spec), HasSubstr("weight_map names the file"));
  }
  // As Hugging Face's cache has it.
  std::filesystem::create_symlink("../secret.safetensors", directory / "model" / "a.safetensors");
  index_with("a.safetensors");
  expect_equal(read_model(directory / "model", spec, DType::kFloat32), weights);
}

TEST(HfModel, ATensorInTwoFilesIsRefused) {
  const auto directory = fresh_directory();
  const ModelSpec spec = tiny_llama();
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  Json map = Json::object();
  for (const auto& [tensor, value] : weights) map[tensor] = "a.safetensors";
  map[kQProj] = "b.safetensors";
  write_safetensors(directory / "a.safetensors", weights);
  write_safetensors(directory / "b.safetensors", {{kQProj, weights.at(kQProj)}});
  write_text(directory / "model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  EXPECT_THAT(refusal(directory, spec), AllOf(HasSubstr(kQProj), HasSubstr("is also in")));
}

TEST(HfModel, AnExportCopiesNoLinksTargetFromElsewhere) {
  namespace fs = std::filesystem;
  const auto root = fresh_directory();
  const ModelSpec spec = tiny_llama();
  const TensorMap weights = random_model(spec, DType::kFloat32, 7);
  const auto export_of = [&](const fs::path& from) {
    fs::remove_all(root / "to");
    write_model(root / "to", spec, DType::kFloat32, weights, {.tokenizer = from, .model = from});
  };
  write_text(root / "secret", "{\"secret\": 1}");
  write_text(root / "model" / "vocab.json", "{}");
  fs::create_symlink("vocab.json", root / "model" / "added_tokens.json");
  fs::create_symlink("../secret", root / "model" / "tokenizer.json");
  fs::create_symlink(root / "secret", root / "model" / "generation_config.json");
  fs::create_symlink("/dev/zero", root / "model" / "merges.txt");
  ASSERT_EQ(::mkfifo((root / "model" / "tokenizer.model").c_str(), 0600), 0);
  export_of(root / "model");
  EXPECT_TRUE(fs::exists(root / "to" / "vocab.json"));
  EXPECT_TRUE(fs::exists(root / "to" / "added_tokens.json"));
  for (const char* name : {"tokenizer.json", "merges.txt", "tokenizer.model"}) {
    EXPECT_FALSE(fs::exists(root / "to" / name)) << name;
  }
  EXPECT_EQ(read_text(root / "to" / kGenerationConfig).find("secret"), std::string::npos);

  const fs::path cache = root / "models--a--b";
  write_text(cache / "blobs" / "0123", "{}");
  fs::create_directories(cache / "snapshots" / "4567");
  fs::create_symlink("../../blobs/0123", cache / "snapshots" / "4567" / "tokenizer.json");
  fs::create_symlink("../../../secret", cache / "snapshots" / "4567" / "vocab.json");
  export_of(cache / "snapshots" / "4567");
  EXPECT_TRUE(fs::exists(root / "to" / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(root / "to" / "vocab.json"));
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
