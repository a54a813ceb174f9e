#include "nereus/core/state/sharding.h"

#include <algorithm>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

std::string to_string(StateKind kind) {
  switch (kind) {
    case StateKind::kWeights:
      return "weights";
    case StateKind::kMaster:
      return "master";
    case StateKind::kExpAvg:
      return "exp_avg";
    case StateKind::kExpAvgSq:
      return "exp_avg_sq";
  }
  return "?";
}

StatePart part_of(StateKind kind) {
  return kind == StateKind::kWeights ? StatePart::kWeights : StatePart::kOptimizer;
}

std::string to_string(StatePart part) {
  return part == StatePart::kWeights ? "weights" : "optimizer state";
}

LayerRange stage_layers(int num_layers, int pp, int pp_rank) {
  NEREUS_CHECK(pp_rank >= 0 && pp_rank < pp, std::to_string(pp_rank) + " of " + std::to_string(pp));
  const int share = num_layers / pp;
  const int longer = num_layers % pp;  // so many stages hold one block more
  const int begin = pp_rank * share + std::min(pp_rank, longer);
  return {begin, begin + share + (pp_rank < longer ? 1 : 0)};
}

LayerRange tp_groups_of(int64_t groups, int tp, int tp_rank) {
  NEREUS_CHECK(tp_rank >= 0 && tp_rank < tp, std::to_string(tp_rank) + " of " + std::to_string(tp));
  // Rounding down both ends makes the cuts of tp a subset of the cuts of every multiple of tp, so
  // that Split and Merge move as little as they can.
  const auto begin = static_cast<int>(groups * tp_rank / tp);
  if (groups < tp) return {begin, begin + 1};
  return {begin, static_cast<int>(groups * (tp_rank + 1) / tp)};
}

int num_chunks(int num_layers) { return num_layers + 2; }

int chunk_of(const TensorSpec& tensor, int num_layers) {
  return std::min(tensor.layer, num_layers) + 1;
}

LayerRange stage_chunks(int num_layers, int pp, int pp_rank) {
  const LayerRange layers = stage_layers(num_layers, pp, pp_rank);
  return {pp_rank == 0 ? 0 : layers.begin + 1,
          pp_rank == pp - 1 ? num_chunks(num_layers) : layers.end + 1};
}

bool lives_on(const TensorSpec& tensor, int num_layers, int pp, int pp_rank) {
  if (tensor.also_on_last_stage && pp_rank == pp - 1) return true;
  const LayerRange chunks = stage_chunks(num_layers, pp, pp_rank);
  const int chunk = chunk_of(tensor, num_layers);
  return chunks.begin <= chunk && chunk < chunks.end;
}

namespace {

void keep_groups(Box& box, int dim, LayerRange groups, int64_t group) {
  box.begin[dim] = groups.begin * group;
  box.end[dim] = groups.end * group;
}

std::optional<Box> zero_part(Box box, Layout layout, Rank rank) {
  const int64_t begin = box.begin[0], rows = box.end[0] - begin;
  box.begin[0] = begin + rows * rank.zero / layout.zero;
  box.end[0] = begin + rows * (rank.zero + 1) / layout.zero;
  return box.begin[0] < box.end[0] ? std::optional(std::move(box)) : std::nullopt;
}

}  // namespace

std::optional<Box> cut(const TensorSpec& tensor, Layout layout, Rank rank, StatePart part) {
  Box box = whole(tensor.shape);
  int ranks = layout.tp, own = rank.tp;  // that share tp_dim
  if (tensor.ep_dim >= 0) {
    ranks = layout.tp / layout.ep;
    own = rank.tp % ranks;
    const int64_t experts = tensor.shape[tensor.ep_dim];
    keep_groups(box, tensor.ep_dim, tp_groups_of(experts, layout.ep, rank.tp / ranks), 1);
  }
  if (tensor.tp_dim >= 0) {
    const int64_t size = tensor.shape[tensor.tp_dim];
    NEREUS_CHECK(size % tensor.tp_groups == 0, tensor.name + ": " +
                                                   std::to_string(tensor.tp_groups) +
                                                   " groups do not divide " + std::to_string(size));
    keep_groups(box, tensor.tp_dim, tp_groups_of(tensor.tp_groups, ranks, own),
                size / tensor.tp_groups);
  }
  if (part == StatePart::kOptimizer) return zero_part(std::move(box), layout, rank);
  return box;
}

std::optional<Box> shard(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank,
                         StateKind kind) {
  if (!lives_on(tensor, num_layers, layout.pp, rank.pp)) return std::nullopt;
  return cut(tensor, layout, rank, part_of(kind));
}

std::vector<Rank> holders(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank,
                          StateKind kind) {
  std::vector<Rank> same;
  const std::optional<Box> box = shard(tensor, num_layers, layout, rank, kind);
  if (!box) return same;
  for (int index = 0; index < layout.devices(); ++index) {
    const Rank other = rank_at(layout, index);
    if (shard(tensor, num_layers, layout, other, kind) == box) same.push_back(other);
  }
  return same;
}

bool is_primary(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank,
                StateKind kind) {
  const std::vector<Rank> same = holders(tensor, num_layers, layout, rank, kind);
  return !same.empty() && same.front() == rank;
}

}  // namespace nereus
