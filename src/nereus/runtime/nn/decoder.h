// One rank's part of a decoder-only transformer: its pipeline stage's blocks, cut by tensor
// parallelism.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nereus/core/state/sharding.h"
#include "nereus/runtime/comm/communicator.h"
#include "nereus/runtime/nn/log_probs.h"
#include "nereus/runtime/nn/packing.h"
#include "nereus/runtime/nn/rope.h"
#include "nereus/runtime/nn/stacked_linear.h"

namespace nereus {

// Local shards by logical name; views into the owner's arenas. Device and dtype come from them.
using ParameterMap = std::map<std::string, at::Tensor>;

// Not thread-safe; used by the worker thread of its device. Holds references to the parameter
// tensors (not copies) and to the TP communicator, which must outlive it and every graph recorded
// with it.
class DecoderStage {
 public:
  // `parameters` must hold exactly the shards that `layout` gives `rank` (shard() in state). Throws
  // Error(kInternal) naming a tensor that is missing or has another shape.
  DecoderStage(const ModelSpec& spec, Layout layout, Rank rank, ParameterMap parameters,
               Communicator& tp);

  bool is_first() const { return rank_.pp == 0; }
  bool is_last() const { return rank_.pp == layout_.pp - 1; }
  const ModelSpec& spec() const { return spec_; }
  Layout layout() const { return layout_; }
  Rank rank() const { return rank_; }
  LayerRange layers() const { return layers_; }
  at::TensorOptions options() const { return options_; }  // of hidden states: device and dtype
  int64_t kv_heads() const { return kv_heads_; }          // of this rank

  // tokens [n] int64 → hidden [n, hidden]. First stage only.
  at::Tensor embed(const at::Tensor& tokens) const;
  // One block (global number) over packed sequences from position 0, causal: hidden [n, h] → [n,
  // h].
  at::Tensor block(int layer, const at::Tensor& hidden, const Packing& packing) const;
  // The same for backward alone: its graph, without the values at its end, which backward does not
  // read (they cost a quarter of a block's forward).
  at::Tensor block_for_backward(int layer, const at::Tensor& hidden, const Packing& packing) const;
  // Attention of the local block number `block`: qkv [n, heads + 2 · kv heads, head_dim] before
  // rotation → [n, heads · head_dim].
  using Attend = std::function<at::Tensor(int block, const at::Tensor& qkv)>;
  // All local blocks with another attention (over a cache): hidden [n, h] → [n, h]. No autograd.
  at::Tensor blocks(at::Tensor hidden, const Attend& attend) const;
  // Tables for at least `positions` positions.
  RopeTables rope_tables(int64_t positions) const;

  // The last stage's end, on selected rows: hidden [n, h] → local logits [n, vocab/tp].
  at::Tensor logits(const at::Tensor& hidden) const;
  // Of the tokens `targets` [n], under softmax(logits / temperature).
  LogProbs log_probs(const at::Tensor& hidden, const at::Tensor& targets, double temperature,
                     bool with_entropy) const;
  // Scalar head (Head::kScalar): hidden [n, h] → [n]. The same on all TP ranks.
  at::Tensor values(const at::Tensor& hidden) const;

 private:
  struct Block {
    at::Tensor input_norm, post_attention_norm;
    LinearStack qkv;
    at::Tensor q_norm, k_norm;  // undefined: none
    at::Tensor o;
    LinearStack gate_up;
    at::Tensor down;
  };

  static Block block_of(const ParameterMap& parameters, const ModelSpec& spec, int layer);
  // What a block adds to the residual stream at its end.
  struct FeedForward {
    at::Tensor residual;   // [n, h]
    at::Tensor activated;  // [n, intermediate/tp], to be projected down
  };
  // `attention`: qkv → [n, heads · head_dim].
  template <class Attention>
  FeedForward run(const Block& block, const at::Tensor& hidden, const Attention& attention) const;
  FeedForward run(const Block& block, const at::Tensor& hidden, const Packing& packing) const;
  at::Tensor sum(const Block& block, const FeedForward& end) const;
  // normed [n, h] → [n, heads + 2 · kv heads, head_dim].
  at::Tensor project(const Block& block, const at::Tensor& normed) const;
  at::Tensor final_norm(const at::Tensor& hidden) const;

  ModelSpec spec_;
  Layout layout_;
  Rank rank_;
  LayerRange layers_;
  int64_t vocab_begin_ = 0;  // first row of the vocabulary whose embedding and logits are here
  int64_t kv_heads_ = 0;
  Communicator& tp_;
  at::TensorOptions options_;
  std::vector<Block> blocks_;
  at::Tensor embedding_;  // first stage
  at::Tensor norm_;       // last stage
  at::Tensor head_;       // last stage: lm_head, the tied embedding or score
  mutable RopeTables rope_;
};

}  // namespace nereus
