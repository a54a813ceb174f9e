#include "nereus/core/model/tensor_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace nereus {
namespace {

using ::testing::ElementsAre;

ModelSpec tiny() {
  return {.vocab_size = 50,
          .hidden_size = 24,
          .intermediate_size = 40,
          .num_layers = 2,
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 8};
}

const TensorSpec& named(const std::vector<TensorSpec>& list, const std::string& name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const auto& t) { return t.name == name; });
  if (found == list.end()) throw Error(ErrorCode::kInternal, "no tensor " + name);
  return *found;
}

bool has(const std::vector<TensorSpec>& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& t) { return t.name == name; });
}

void expect_cut(const TensorSpec& tensor, std::vector<int64_t> shape, int dim, int64_t groups) {
  EXPECT_EQ(tensor.shape, shape) << tensor.name;
  EXPECT_EQ(tensor.tp_dim, dim) << tensor.name;
  EXPECT_EQ(tensor.tp_groups, groups) << tensor.name;
}

TEST(TensorSpec, OneLayerInModuleOrder) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors(tiny())) {
    if (tensor.layer == 1) names.push_back(tensor.name.substr(sizeof("model.layers.1.") - 1));
  }
  EXPECT_THAT(names,
              ElementsAre("input_layernorm.weight", "self_attn.q_proj.weight",
                          "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                          "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                          "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"));
}

TEST(TensorSpec, ShapesAndCuts) {
  const auto list = tensors(tiny());
  const std::string layer = "model.layers.0.";
  expect_cut(named(list, "model.embed_tokens.weight"), {50, 24}, 0, 50);
  expect_cut(named(list, layer + "self_attn.q_proj.weight"), {48, 24}, 0, 6);
  expect_cut(named(list, layer + "self_attn.k_proj.weight"), {16, 24}, 0, 2);
  expect_cut(named(list, layer + "self_attn.v_proj.weight"), {16, 24}, 0, 2);
  expect_cut(named(list, layer + "self_attn.o_proj.weight"), {24, 48}, 1, 6);
  expect_cut(named(list, layer + "mlp.gate_proj.weight"), {40, 24}, 0, 40);
  expect_cut(named(list, layer + "mlp.down_proj.weight"), {24, 40}, 1, 40);
  expect_cut(named(list, layer + "input_layernorm.weight"), {24}, -1, 1);
  expect_cut(named(list, "model.norm.weight"), {24}, -1, 1);
  expect_cut(named(list, "lm_head.weight"), {50, 24}, 0, 50);
  EXPECT_EQ(named(list, "lm_head.weight").layer, kHeadLayer);
  EXPECT_EQ(named(list, "model.embed_tokens.weight").layer, kEmbeddingLayer);
}

TEST(TensorSpec, Qwen2BiasesAndQwen3Norms) {
  ModelSpec spec = tiny();
  spec.qkv_bias = true;
  spec.qk_norm = true;
  const auto list = tensors(spec);
  expect_cut(named(list, "model.layers.0.self_attn.q_proj.bias"), {48}, 0, 6);
  expect_cut(named(list, "model.layers.0.self_attn.k_proj.bias"), {16}, 0, 2);
  EXPECT_FALSE(has(list, "model.layers.0.self_attn.o_proj.bias"));
  const TensorSpec& norm = named(list, "model.layers.1.self_attn.k_norm.weight");
  expect_cut(norm, {8}, -1, 1);
  EXPECT_TRUE(norm.partial_gradient);
  EXPECT_FALSE(named(list, "model.norm.weight").partial_gradient);
}

TEST(TensorSpec, TiedEmbeddingsLiveOnBothEnds) {
  ModelSpec spec = tiny();
  EXPECT_FALSE(tensors(spec).front().also_on_last_stage);
  spec.tie_word_embeddings = true;
  EXPECT_TRUE(tensors(spec).front().also_on_last_stage);
  EXPECT_FALSE(has(tensors(spec), "lm_head.weight"));
}

TEST(TensorSpec, ScalarHead) {
  const auto list = tensors(as_critic(tiny()));
  expect_cut(named(list, "score.weight"), {1, 24}, -1, 1);
  EXPECT_EQ(named(list, "score.weight").layer, kHeadLayer);
  EXPECT_FALSE(has(list, "lm_head.weight"));
  EXPECT_FALSE(list.front().also_on_last_stage);
}

TEST(TensorSpec, ExpertsTakeThePlaceOfTheFfn) {
  ModelSpec spec = tiny();
  spec.num_experts = 4;
  spec.moe_intermediate_size = 10;
  const auto list = tensors(spec);
  const std::string mlp = "model.layers.1.mlp.";
  expect_cut(named(list, mlp + "gate.weight"), {4, 24}, -1, 1);
  expect_cut(named(list, mlp + "experts.gate_proj"), {4, 10, 24}, 1, 10);
  expect_cut(named(list, mlp + "experts.up_proj"), {4, 10, 24}, 1, 10);
  expect_cut(named(list, mlp + "experts.down_proj"), {4, 24, 10}, 2, 10);
  EXPECT_EQ(named(list, mlp + "experts.down_proj").ep_dim, 0);
  EXPECT_EQ(named(list, mlp + "gate.weight").ep_dim, -1);
  EXPECT_FALSE(has(list, mlp + "gate_proj.weight"));
}

TEST(TensorSpec, AnyModelHasUniqueNamesInLayerOrderAndWholeGroups) {
  EXPECT_TRUE(rc::check([] {
    ModelSpec spec = tiny();
    spec.num_layers = *rc::gen::inRange(1, 12);
    spec.num_kv_heads = *rc::gen::inRange(1, 5);
    spec.num_heads = spec.num_kv_heads * *rc::gen::inRange(1, 5);
    spec.vocab_size = *rc::gen::inRange(1, 100);
    spec.qkv_bias = *rc::gen::arbitrary<bool>();
    spec.qk_norm = *rc::gen::arbitrary<bool>();
    spec.tie_word_embeddings = *rc::gen::arbitrary<bool>();
    const auto list = tensors(spec);
    std::set<std::string> names;
    for (const TensorSpec& tensor : list) {
      RC_ASSERT(names.insert(tensor.name).second);
      if (tensor.tp_dim < 0) continue;
      RC_ASSERT(tensor.shape[static_cast<size_t>(tensor.tp_dim)] % tensor.tp_groups == 0);
    }
    RC_ASSERT(std::is_sorted(list.begin(), list.end(),
                             [](const auto& a, const auto& b) { return a.layer < b.layer; }));
  }));
}

}  // namespace
}  // namespace nereus
