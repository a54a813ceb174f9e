#include "nereus/core/model/tensor_spec.h"

#include <functional>
#include <numeric>
#include <utility>

namespace nereus {

namespace {

TensorSpec replicated(std::string name, std::vector<int64_t> shape, int layer) {
  return {.name = std::move(name), .shape = std::move(shape), .layer = layer};
}

TensorSpec cut(std::string name, std::vector<int64_t> shape, int layer, int dim, int64_t groups) {
  return {.name = std::move(name),
          .shape = std::move(shape),
          .layer = layer,
          .tp_dim = dim,
          .tp_groups = groups};
}

// q, k and v are cut by heads; o_proj takes what they give, so it is cut along its input.
void append_attention(std::vector<TensorSpec>& list, const ModelSpec& spec,
                      const std::string& prefix, int layer) {
  struct Projection {
    const char* name;
    int heads;
  };
  for (const auto& [name, heads] :
       {Projection{"q_proj", spec.num_heads}, Projection{"k_proj", spec.num_kv_heads},
        Projection{"v_proj", spec.num_kv_heads}}) {
    const int64_t rows = int64_t{heads} * spec.head_dim;
    list.push_back(cut(prefix + name + ".weight", {rows, spec.hidden_size}, layer, 0, heads));
    if (spec.qkv_bias) list.push_back(cut(prefix + name + ".bias", {rows}, layer, 0, heads));
  }
  const int64_t width = int64_t{spec.num_heads} * spec.head_dim;
  list.push_back(
      cut(prefix + "o_proj.weight", {spec.hidden_size, width}, layer, 1, spec.num_heads));
  if (!spec.qk_norm) return;
  // One norm weight serves every head, and each TP rank sees only its own heads.
  for (const char* name : {"q_norm.weight", "k_norm.weight"}) {
    TensorSpec norm = replicated(prefix + name, {spec.head_dim}, layer);
    norm.partial_gradient = true;
    list.push_back(std::move(norm));
  }
}

void append_mlp(std::vector<TensorSpec>& list, const ModelSpec& spec, const std::string& prefix,
                int layer) {
  const int64_t hidden = spec.hidden_size, ffn = spec.intermediate_size;
  list.push_back(cut(prefix + "gate_proj.weight", {ffn, hidden}, layer, 0, ffn));
  list.push_back(cut(prefix + "up_proj.weight", {ffn, hidden}, layer, 0, ffn));
  list.push_back(cut(prefix + "down_proj.weight", {hidden, ffn}, layer, 1, ffn));
}

void append_experts(std::vector<TensorSpec>& list, const ModelSpec& spec, const std::string& prefix,
                    int layer) {
  const int64_t experts = spec.num_experts, hidden = spec.hidden_size;
  const int64_t ffn = spec.moe_intermediate_size;
  const auto append = [&](const char* name, int64_t rows, int64_t columns, int dim) {
    list.push_back(cut(prefix + "experts." + name, {experts, rows, columns}, layer, dim, ffn));
    list.back().ep_dim = 0;
  };
  list.push_back(replicated(prefix + "gate.weight", {experts, hidden}, layer));  // the router
  append("gate_proj", ffn, hidden, 1);
  append("up_proj", ffn, hidden, 1);
  append("down_proj", hidden, ffn, 2);
}

}  // namespace

std::vector<TensorSpec> tensors(const ModelSpec& spec) {
  const int64_t hidden = spec.hidden_size, vocab = spec.vocab_size;
  std::vector<TensorSpec> list;
  list.push_back(cut("model.embed_tokens.weight", {vocab, hidden}, kEmbeddingLayer, 0, vocab));
  list.back().also_on_last_stage = spec.tie_word_embeddings && spec.head == Head::kLanguageModel;
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    list.push_back(replicated(prefix + "input_layernorm.weight", {hidden}, layer));
    append_attention(list, spec, prefix + "self_attn.", layer);
    list.push_back(replicated(prefix + "post_attention_layernorm.weight", {hidden}, layer));
    const auto append_ffn = spec.num_experts > 0 ? append_experts : append_mlp;
    append_ffn(list, spec, prefix + "mlp.", layer);
  }
  list.push_back(replicated("model.norm.weight", {hidden}, kHeadLayer));
  if (spec.head == Head::kScalar) {
    list.push_back(replicated("score.weight", {1, hidden}, kHeadLayer));
  } else if (!spec.tie_word_embeddings) {
    list.push_back(cut("lm_head.weight", {vocab, hidden}, kHeadLayer, 0, vocab));
  }
  return list;
}

int64_t element_count(const TensorSpec& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace nereus
