#include "nereus/core/cost/shape.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace nereus {
namespace {

// Elements that ranks of one TP and ZeRO index hold, by place in the pipeline.
struct Places {
  int64_t embedding = 0;
  int64_t block = 0;
  int64_t head = 0;
  int64_t tied = 0;  // the embedding's copy on the last of several stages
};

Places places(const std::vector<TensorSpec>& one_block_model, Layout layout, Rank rank,
              StatePart part) {
  Places sum;
  for (const TensorSpec& tensor : one_block_model) {
    const std::optional<Box> box = cut(tensor, layout, rank, part);
    const int64_t elements = box ? volume(*box) : 0;
    if (tensor.layer == kEmbeddingLayer) {
      sum.embedding += elements;
    } else if (tensor.layer == kHeadLayer) {
      sum.head += elements;
    } else {
      sum.block += elements;
    }
    if (tensor.also_on_last_stage) sum.tied += elements;
  }
  return sum;
}

}  // namespace

std::vector<int64_t> part_elements(const ModelSpec& spec, Layout layout, StatePart part) {
  ModelSpec one_block = spec;
  one_block.num_layers = 1;
  const std::vector<TensorSpec> list = tensors(one_block);
  std::vector<Places> by_cut;  // the pipeline stage does not change how a tensor is cut
  for (int zero = 0; zero < layout.zero; ++zero) {
    for (int tp = 0; tp < layout.tp; ++tp)
      by_cut.push_back(places(list, layout, {tp, 0, zero}, part));
  }
  std::vector<int64_t> elements;
  for (int index = 0; index < layout.devices(); ++index) {
    const Rank rank = rank_at(layout, index);
    const Places& of = by_cut[size_t(rank.zero) * layout.tp + rank.tp];
    const LayerRange layers = stage_layers(spec.num_layers, layout.pp, rank.pp);
    const bool first = rank.pp == 0;
    const bool last = rank.pp == layout.pp - 1;
    elements.push_back(of.block * (layers.end - layers.begin) + (first ? of.embedding : 0) +
                       (last ? of.head + (first ? 0 : of.tied) : 0));
  }
  return elements;
}

std::vector<int64_t> weight_elements(const ModelSpec& spec, Layout layout) {
  return part_elements(spec, layout, StatePart::kWeights);
}

int64_t largest_share(int64_t groups, int tp) { return ceil_div(groups, tp); }

TokenWidths token_widths(const ModelSpec& spec, int tp, const Execution& execution) {
  const double hidden = double(spec.hidden_size);
  return {.hidden = hidden,
          .sequence = hidden / (execution.sequence_parallel ? tp : 1),
          .query = double(largest_share(spec.num_heads, tp)) * spec.head_dim,
          .key_value = double(largest_share(spec.num_kv_heads, tp)) * spec.head_dim,
          .ffn = double(largest_share(active_ffn(spec), tp))};
}

MicroBatches micro_batches(int64_t sequences, const StagePlan& stage) {
  const int64_t own = std::max<int64_t>(1, ceil_div(sequences, stage.dp()));
  const int64_t size = std::min<int64_t>(stage.micro_batch, own);
  return {size, ceil_div(own, size)};
}

int64_t block_parameters(const ModelSpec& spec) {
  const int64_t query = int64_t{spec.num_heads} * spec.head_dim;
  const int64_t key_value = int64_t{spec.num_kv_heads} * spec.head_dim;
  return spec.hidden_size * (2 * query + 2 * key_value + 3 * active_ffn(spec) + spec.num_experts);
}

int64_t head_parameters(const ModelSpec& spec) {
  return spec.hidden_size * (spec.head == Head::kScalar ? 1 : spec.vocab_size);
}

int64_t active_ffn(const ModelSpec& spec) {
  return spec.num_experts == 0 ? spec.intermediate_size
                               : spec.experts_per_token * spec.moe_intermediate_size;
}

double touched_experts(const ModelSpec& spec, double tokens) {
  if (spec.num_experts == 0) return 1;
  return 1 - std::pow(1 - double(spec.experts_per_token) / spec.num_experts, tokens);
}

}  // namespace nereus
