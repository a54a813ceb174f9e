// Every model is a list of tensors with logical (Hugging Face) names and global shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nereus/core/model/model_spec.h"

namespace nereus {

struct TensorSpec {
  std::string name;            // e.g. "model.layers.3.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // global
  // Position in the pipeline: kEmbeddingLayer, 0 … num_layers - 1, or kHeadLayer (final norm,
  // head).
  int layer = 0;
  // The dimension that tensor parallelism cuts, or -1: every TP rank holds the whole tensor.
  int tp_dim = -1;
  // Indivisible groups along tp_dim (heads, KV heads, FFN columns, vocabulary rows). With more TP
  // ranks than groups, neighbouring ranks hold the same group.
  int64_t tp_groups = 1;
  // A tied embedding lives on the first *and* the last pipeline stage.
  bool also_on_last_stage = false;
  // A replicated tensor whose gradient is a partial sum on each TP rank (q_norm, k_norm).
  bool partial_gradient = false;
  // The dimension that counts experts, cut by expert parallelism, or -1.
  int ep_dim = -1;
  bool operator==(const TensorSpec&) const = default;
};

inline constexpr int kEmbeddingLayer = -1;
inline constexpr int kHeadLayer = 1 << 20;

// The tensors of a model in their canonical order: by layer, and within a layer in the order of
// computation.
std::vector<TensorSpec> tensors(const ModelSpec& spec);

int64_t element_count(const TensorSpec& tensor);

}  // namespace nereus
