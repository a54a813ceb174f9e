#include "nereus/cost/shape.h"

#include <algorithm>

namespace nereus {
namespace {

int64_t local_elements(const TensorSpec& tensor, int tp, int tp_rank) {
  const int64_t all = element_count(tensor);
  if (tensor.tp_dim < 0) return all;
  const LayerRange groups = tp_groups_of(tensor.tp_groups, tp, tp_rank);
  return all / tensor.tp_groups * (groups.end - groups.begin);
}

// Elements of one TP rank by place in the pipeline.
struct Places {
  int64_t embedding = 0;
  int64_t block = 0;
  int64_t head = 0;
  int64_t tied = 0;  // the embedding's copy on the last of several stages
};

Places places(const std::vector<TensorSpec>& one_block_model, int tp, int tp_rank) {
  Places sum;
  for (const TensorSpec& tensor : one_block_model) {
    const int64_t elements = local_elements(tensor, tp, tp_rank);
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

std::vector<int64_t> weight_elements(const ModelSpec& spec, Layout layout) {
  ModelSpec one_block = spec;
  one_block.num_layers = 1;
  const std::vector<TensorSpec> list = tensors(one_block);

  std::vector<int64_t> elements(layout.devices());
  for (int tp_rank = 0; tp_rank < layout.tp; ++tp_rank) {
    const Places rank = places(list, layout.tp, tp_rank);
    for (int pp_rank = 0; pp_rank < layout.pp; ++pp_rank) {
      const LayerRange layers = stage_layers(spec.num_layers, layout.pp, pp_rank);
      int64_t& sum = elements[pp_rank * layout.tp + tp_rank];
      sum = rank.block * (layers.end - layers.begin);
      const bool first = pp_rank == 0;
      const bool last = pp_rank == layout.pp - 1;
      if (first) sum += rank.embedding;
      if (last) sum += rank.head + (first ? 0 : rank.tied);
    }
  }
  return elements;
}

int64_t largest_share(int64_t groups, int tp) { return ceil_div(groups, tp); }

MicroBatches micro_batches(int64_t sequences, const StagePlan& stage) {
  const int64_t own = std::max<int64_t>(1, ceil_div(sequences, stage.dp()));
  const int64_t size = std::min<int64_t>(stage.micro_batch, own);
  return {size, ceil_div(own, size)};
}

int64_t block_parameters(const ModelSpec& spec) {
  const int64_t query = int64_t{spec.num_heads} * spec.head_dim;
  const int64_t key_value = int64_t{spec.num_kv_heads} * spec.head_dim;
  return spec.hidden_size * (2 * query + 2 * key_value + 3 * spec.intermediate_size);
}

int64_t head_parameters(const ModelSpec& spec) {
  return spec.hidden_size * (spec.head == Head::kScalar ? 1 : spec.vocab_size);
}

}  // namespace nereus
