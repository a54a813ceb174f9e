// One rank's part of a decoder-only transformer: its pipeline stage's blocks, cut by tensor parallelism.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "nereus/comm/communicator.h"
#include "nereus/nn/kv_cache.h"
#include "nereus/state/sharding.h"

namespace nereus {

// Local shards by logical name; views into the owner's arenas. Device and dtype come from them.
using ParameterMap = std::map<std::string, at::Tensor>;

// Not thread-safe; used by the worker thread of its device. Holds references to the parameter tensors
// (not copies) and to the TP communicator, which must outlive it.
class DecoderStage {
 public:
  // `parameters` must hold exactly the shards that `layout` gives `rank` (shard() in state).
  DecoderStage(const ModelSpec& spec, Layout layout, Rank rank, ParameterMap parameters,
               Communicator& tp);

  bool is_first() const { return rank_.pp == 0; }
  bool is_last() const { return rank_.pp == layout_.pp - 1; }
  const ModelSpec& spec() const { return spec_; }
  LayerRange layers() const { return layers_; }

  // tokens [b, T] int64 → hidden [b, T, hidden]. First stage only.
  at::Tensor embed(const at::Tensor& tokens) const;
  // One block (global number) over whole sequences from position 0, right-padded, causal: padding
  // comes after all real tokens, so it needs no mask. hidden [b, T, h] → [b, T, h].
  at::Tensor block(int layer, const at::Tensor& hidden) const;
  // The same with the cache: appends keys and values of `hidden` [b, T, h] at each row's current length
  // (prefill: T > 1 from length 0; decode: T = 1). Does not advance the lengths. No autograd.
  at::Tensor block_cached(int layer, const at::Tensor& hidden, KvCache& cache) const;
  // Final norm and head on selected rows, last stage only: hidden [n, h] → local logits [n, vocab/tp].
  at::Tensor logits(const at::Tensor& hidden) const;
  // Final norm and scalar head (Head::kScalar): hidden [n, h] → [n].
  at::Tensor values(const at::Tensor& hidden) const;

 private:
  const at::Tensor& parameter(int layer, const char* suffix) const;
  at::Tensor project_qkv_attend(int layer, const at::Tensor& hidden, KvCache* cache) const;
  at::Tensor feed_forward(int layer, const at::Tensor& hidden) const;

  ModelSpec spec_;
  Layout layout_;
  Rank rank_;
  LayerRange layers_;
  ParameterMap parameters_;
  Communicator& tp_;
  at::Tensor rope_cos_;  // [max positions used, head_dim]; grown on demand
  at::Tensor rope_sin_;
};

}  // namespace nereus
