#include "nereus/runtime/nn/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/runtime/nn/attention.h"
#include "nereus/runtime/nn/parallel_ops.h"
#include "nereus/runtime/nn/rms_norm.h"
#include "nereus/runtime/nn/swiglu.h"

namespace nereus {

namespace {

constexpr int64_t kRopeRows = 256;  // tables grow by doubling from here

// Throws unless `parameters` is what `layout` gives `rank`.
void check_shards(const ModelSpec& spec, Layout layout, Rank rank, const ParameterMap& parameters) {
  for (const TensorSpec& tensor : tensors(spec)) {
    const std::optional<Box> box = shard(tensor, spec.num_layers, layout, rank);
    if (!box) continue;
    const auto found = parameters.find(tensor.name);
    NEREUS_CHECK(found != parameters.end(), tensor.name + " is missing");
    NEREUS_CHECK(found->second.sizes() == at::IntArrayRef(extent(*box)),
                 tensor.name + " has another shape than its shard " + to_string(*box));
  }
}

}  // namespace

DecoderStage::DecoderStage(const ModelSpec& spec, Layout layout, Rank rank, ParameterMap parameters,
                           Communicator& tp)
    : spec_(spec),
      layout_(layout),
      rank_(rank),
      layers_(stage_layers(spec.num_layers, layout.pp, rank.pp)),
      vocab_begin_(tp_groups_of(spec.vocab_size, layout.tp, rank.tp).begin),
      tp_(tp) {
  check_shards(spec, layout, rank, parameters);
  for (int layer = layers_.begin; layer < layers_.end; ++layer) {
    blocks_.push_back(block_of(parameters, spec, layer));
  }
  options_ = blocks_.front().o.options();
  kv_heads_ = blocks_.front().qkv.weights.back().size(0) / spec.head_dim;
  const auto find = [&](const char* name) { return parameters.at(name); };
  if (is_first()) embedding_ = find("model.embed_tokens.weight");
  if (!is_last()) return;
  norm_ = find("model.norm.weight");
  if (spec.head == Head::kScalar) {
    head_ = find("score.weight");
  } else {
    head_ = find(spec.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  }
}

at::Tensor DecoderStage::embed(const at::Tensor& tokens) const {
  return vocab_parallel_embedding(tokens, embedding_, vocab_begin_, tp_);
}

template <class Attention>
DecoderStage::FeedForward DecoderStage::run(const Block& block, const at::Tensor& hidden,
                                            const Attention& attention) const {
  const double eps = spec_.rms_norm_eps;
  const at::Tensor input = copy_to_tp(rms_norm(hidden, block.input_norm, eps), tp_);
  const at::Tensor attended = at::linear(attention(project(block, input)), block.o);
  const at::Tensor mixed = hidden + reduce_from_tp(attended, tp_);
  const at::Tensor normed = copy_to_tp(rms_norm(mixed, block.post_attention_norm, eps), tp_);
  return {mixed, swiglu(linear(normed, block.gate_up))};
}

DecoderStage::FeedForward DecoderStage::run(const Block& block, const at::Tensor& hidden,
                                            const Packing& packing) const {
  const RopeTables rope = rope_tables(packing.longest());
  return run(block, hidden, [&](const at::Tensor& qkv) {
    const int64_t rotated = qkv.size(1) - kv_heads_;
    return causal_attention(
        split_heads(apply_rope(qkv, rotated, rope, packing.positions), kv_heads_), packing);
  });
}

at::Tensor DecoderStage::sum(const Block& block, const FeedForward& end) const {
  return end.residual + reduce_from_tp(at::linear(end.activated, block.down), tp_);
}

at::Tensor DecoderStage::block(int layer, const at::Tensor& hidden, const Packing& packing) const {
  const Block& block = blocks_[layer - layers_.begin];
  return sum(block, run(block, hidden, packing));
}

at::Tensor DecoderStage::block_for_backward(int layer, const at::Tensor& hidden,
                                            const Packing& packing) const {
  const Block& block = blocks_[layer - layers_.begin];
  const FeedForward end = run(block, hidden, packing);
  return unevaluated_residual_linear(end.residual, end.activated, block.down);
}

at::Tensor DecoderStage::blocks(at::Tensor hidden, const Attend& attend) const {
  const at::NoGradGuard no_grad;
  const double eps = spec_.rms_norm_eps;
  at::Tensor input = rms_norm(hidden, blocks_.front().input_norm, eps);
  for (int i = 0; i < std::ssize(blocks_); ++i) {
    const Block& block = blocks_[i];
    // One name, so that what is used up gives its memory back.
    at::Tensor x = attend(i, project(block, input));
    x = reduce_from_tp(at::linear(x, block.o), tp_);
    std::tie(hidden, input) = add_rms_norm(hidden, x, block.post_attention_norm, eps);
    x.reset();
    x = linear(input, block.gate_up);
    x = swiglu(x);
    x = reduce_from_tp(at::linear(x, block.down), tp_);
    if (i + 1 == std::ssize(blocks_)) return hidden + x;
    std::tie(hidden, input) = add_rms_norm(hidden, x, blocks_[i + 1].input_norm, eps);
  }
  return hidden;
}

RopeTables DecoderStage::rope_tables(int64_t positions) const {
  const int64_t rows = rope_.cos.defined() ? rope_.cos.size(0) : 0;
  if (positions > rows) {
    rope_ = make_rope_tables(spec_, std::max({positions, 2 * rows, kRopeRows}), options_);
  }
  return rope_;
}

at::Tensor DecoderStage::logits(const at::Tensor& hidden) const {
  return at::linear(final_norm(hidden), head_);
}

LogProbs DecoderStage::log_probs(const at::Tensor& hidden, const at::Tensor& targets,
                                 double temperature, bool with_entropy) const {
  const LogProbOptions options{
      .temperature = temperature, .vocab_begin = vocab_begin_, .with_entropy = with_entropy};
  return vocab_parallel_log_probs(copy_to_tp(final_norm(hidden), tp_), head_, targets, options,
                                  tp_);
}

at::Tensor DecoderStage::values(const at::Tensor& hidden) const {
  return at::linear(final_norm(hidden), head_).squeeze(-1);
}

DecoderStage::Block DecoderStage::block_of(const ParameterMap& parameters, const ModelSpec& spec,
                                           int layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const auto get = [&](const char* name) { return parameters.at(prefix + name); };
  std::vector<at::Tensor> biases;
  if (spec.qkv_bias) {
    biases = {get("self_attn.q_proj.bias"), get("self_attn.k_proj.bias"),
              get("self_attn.v_proj.bias")};
  }
  return {.input_norm = get("input_layernorm.weight"),
          .post_attention_norm = get("post_attention_layernorm.weight"),
          .qkv = stack({get("self_attn.q_proj.weight"), get("self_attn.k_proj.weight"),
                        get("self_attn.v_proj.weight")},
                       std::move(biases)),
          .q_norm = spec.qk_norm ? get("self_attn.q_norm.weight") : at::Tensor(),
          .k_norm = spec.qk_norm ? get("self_attn.k_norm.weight") : at::Tensor(),
          .o = get("self_attn.o_proj.weight"),
          .gate_up = stack({get("mlp.gate_proj.weight"), get("mlp.up_proj.weight")}),
          .down = get("mlp.down_proj.weight")};
}

at::Tensor DecoderStage::project(const Block& block, const at::Tensor& normed) const {
  at::Tensor qkv = linear(normed, block.qkv).unflatten(1, {-1, spec_.head_dim});
  if (!spec_.qk_norm) return qkv;
  const Heads heads = split_heads(qkv, kv_heads_);
  return at::cat({rms_norm(heads.q, block.q_norm, spec_.rms_norm_eps),
                  rms_norm(heads.k, block.k_norm, spec_.rms_norm_eps), heads.v},
                 1);
}

at::Tensor DecoderStage::final_norm(const at::Tensor& hidden) const {
  return rms_norm(hidden, norm_, spec_.rms_norm_eps);
}

}  // namespace nereus
