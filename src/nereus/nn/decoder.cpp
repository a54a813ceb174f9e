#include "nereus/nn/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/nn/attention.h"
#include "nereus/nn/parallel_ops.h"
#include "nereus/nn/rms_norm.h"

namespace nereus {

namespace {

constexpr int64_t kRopeRows = 256;  // tables grow by doubling from here

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

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

at::Tensor DecoderStage::block(int layer, const at::Tensor& hidden) const {
  const Block& weights = blocks_[layer - layers_.begin];
  const RopeTables rope = rope_prefix(hidden.size(1));
  const at::Tensor normed = rms_norm(hidden, weights.input_norm, spec_.rms_norm_eps);
  const Heads local = heads(weights, copy_to_tp(normed, tp_), rope);
  const at::Tensor mixed = at::linear(causal_attention(local.q, local.k, local.v), weights.o);
  return feed_forward(weights, hidden + reduce_from_tp(mixed, tp_));
}

at::Tensor DecoderStage::blocks_cached(const at::Tensor& hidden, KvCache& cache) const {
  const at::NoGradGuard no_grad;
  const bool prefill = cache.slots == 0;
  const int64_t appended = hidden.size(1);
  const int64_t filled = cache.slots + appended;
  const RopeTables rope = prefill ? rope_prefix(appended) : rope_at(cache.lengths);
  const at::Tensor mask = cache.mask.defined() ? cache.mask.narrow(3, 0, filled) : at::Tensor();
  at::Tensor x = hidden;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& weights = blocks_[i];
    const Heads local = heads(weights, rms_norm(x, weights.input_norm, spec_.rms_norm_eps), rope);
    cache.keys[i].narrow(2, cache.slots, appended).copy_(local.k.transpose(1, 2));
    cache.values[i].narrow(2, cache.slots, appended).copy_(local.v.transpose(1, 2));
    const at::Tensor attended = prefill
                                    ? causal_attention(local.q, local.k, local.v)
                                    : decode_attention(local.q, cache.keys[i].narrow(2, 0, filled),
                                                       cache.values[i].narrow(2, 0, filled), mask);
    x = feed_forward(weights, x + reduce_from_tp(at::linear(attended, weights.o), tp_));
  }
  cache.slots = filled;
  if (!prefill) {
    for (int64_t& length : cache.lengths) ++length;
  }
  return x;
}

at::Tensor DecoderStage::logits(const at::Tensor& hidden) const {
  return at::linear(copy_to_tp(final_norm(hidden), tp_), head_);
}

at::Tensor DecoderStage::values(const at::Tensor& hidden) const {
  return at::linear(final_norm(hidden), head_).squeeze(-1);
}

DecoderStage::Block DecoderStage::block_of(const ParameterMap& parameters, const ModelSpec& spec,
                                           int layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const auto get = [&](const char* name) { return parameters.at(prefix + name); };
  Block block{.input_norm = get("input_layernorm.weight"),
              .post_attention_norm = get("post_attention_layernorm.weight"),
              .q = {get("self_attn.q_proj.weight")},
              .k = {get("self_attn.k_proj.weight")},
              .v = {get("self_attn.v_proj.weight")},
              .o = get("self_attn.o_proj.weight"),
              .gate = get("mlp.gate_proj.weight"),
              .up = get("mlp.up_proj.weight"),
              .down = get("mlp.down_proj.weight")};
  if (spec.qkv_bias) {
    block.q.bias = get("self_attn.q_proj.bias");
    block.k.bias = get("self_attn.k_proj.bias");
    block.v.bias = get("self_attn.v_proj.bias");
  }
  if (spec.qk_norm) {
    block.q_norm = get("self_attn.q_norm.weight");
    block.k_norm = get("self_attn.k_norm.weight");
  }
  return block;
}

RopeTables DecoderStage::rope_prefix(int64_t length) const {
  const int64_t rows = rope_.cos.defined() ? rope_.cos.size(0) : 0;
  if (length > rows) {
    rope_ = make_rope_tables(spec_, std::max({length, 2 * rows, kRopeRows}), options_);
  }
  return {rope_.cos.narrow(0, 0, length), rope_.sin.narrow(0, 0, length)};
}

RopeTables DecoderStage::rope_at(const std::vector<int64_t>& positions) const {
  const RopeTables tables = rope_prefix(std::ranges::max(positions) + 1);
  const at::Tensor index = at::tensor(positions, at::kLong).to(options_.device());
  return {tables.cos.index_select(0, index), tables.sin.index_select(0, index)};
}

DecoderStage::Heads DecoderStage::heads(const Block& block, const at::Tensor& normed,
                                        const RopeTables& rope) const {
  const auto project = [&](const Projection& projection) {
    return at::linear(normed, projection.weight, if_defined(projection.bias))
        .unflatten(2, {-1, spec_.head_dim});
  };
  at::Tensor q = project(block.q), k = project(block.k);
  if (spec_.qk_norm) {
    q = rms_norm(q, block.q_norm, spec_.rms_norm_eps);
    k = rms_norm(k, block.k_norm, spec_.rms_norm_eps);
  }
  return {apply_rope(q, rope), apply_rope(k, rope), project(block.v)};
}

at::Tensor DecoderStage::feed_forward(const Block& block, const at::Tensor& hidden) const {
  const at::Tensor normed =
      copy_to_tp(rms_norm(hidden, block.post_attention_norm, spec_.rms_norm_eps), tp_);
  const at::Tensor inner = at::silu(at::linear(normed, block.gate)) * at::linear(normed, block.up);
  return hidden + reduce_from_tp(at::linear(inner, block.down), tp_);
}

at::Tensor DecoderStage::final_norm(const at::Tensor& hidden) const {
  return rms_norm(hidden, norm_, spec_.rms_norm_eps);
}

}  // namespace nereus
