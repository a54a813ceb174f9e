// One rank's part of a decoder-only transformer: its pipeline stage's blocks, cut by tensor
// parallelism.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "nereus/comm/communicator.h"
#include "nereus/nn/kv_cache.h"
#include "nereus/nn/rope.h"
#include "nereus/state/sharding.h"

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
  Communicator& tp() const { return tp_; }
  // First row of the vocabulary whose embedding and logits are here.
  int64_t vocab_begin() const { return vocab_begin_; }

  // tokens [b, T] int64 → hidden [b, T, hidden]. First stage only.
  at::Tensor embed(const at::Tensor& tokens) const;
  // One block (global number) over whole sequences from position 0, right-padded, causal: padding
  // comes after all real tokens, so it needs no mask. hidden [b, T, h] → [b, T, h].
  at::Tensor block(int layer, const at::Tensor& hidden) const;
  // All local blocks with the cache. Prefill of an empty cache: hidden [b, longest prompt, h],
  // prompts right-padded. Then one token a row: [b, 1, h]. Appends to the cache. No autograd.
  at::Tensor blocks_cached(const at::Tensor& hidden, KvCache& cache) const;
  // Final norm and head on selected rows, last stage only: hidden [n, h] → local logits [n,
  // vocab/tp].
  at::Tensor logits(const at::Tensor& hidden) const;
  // Final norm and scalar head (Head::kScalar): hidden [n, h] → [n]. The same on all TP ranks.
  at::Tensor values(const at::Tensor& hidden) const;

 private:
  struct Projection {
    at::Tensor weight;
    at::Tensor bias;  // undefined: none
  };
  struct Block {
    at::Tensor input_norm, post_attention_norm;
    Projection q, k, v;
    at::Tensor q_norm, k_norm;  // undefined: none
    at::Tensor o;
    at::Tensor gate, up, down;
  };
  struct Heads {
    at::Tensor q, k, v;  // [b, T, heads of each kind, head_dim], rotated
  };

  static Block block_of(const ParameterMap& parameters, const ModelSpec& spec, int layer);
  // Of positions 0 … length - 1. Grows the tables on demand.
  RopeTables rope_prefix(int64_t length) const;
  // Of one position per row.
  RopeTables rope_at(const std::vector<int64_t>& positions) const;
  // normed [b, T, h]; `rope` as apply_rope wants it.
  Heads heads(const Block& block, const at::Tensor& normed, const RopeTables& rope) const;
  at::Tensor feed_forward(const Block& block, const at::Tensor& hidden) const;
  at::Tensor final_norm(const at::Tensor& hidden) const;

  ModelSpec spec_;
  Layout layout_;
  Rank rank_;
  LayerRange layers_;
  int64_t vocab_begin_ = 0;
  Communicator& tp_;
  at::TensorOptions options_;
  std::vector<Block> blocks_;
  at::Tensor embedding_;  // first stage
  at::Tensor norm_;       // last stage
  at::Tensor head_;       // last stage: lm_head, the tied embedding or score
  mutable RopeTables rope_;
};

}  // namespace nereus
