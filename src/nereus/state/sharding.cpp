#include "nereus/state/sharding.h"

#include <algorithm>
#include <utility>

#include "nereus/base/error.h"

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

namespace {

bool lives_on(const TensorSpec& tensor, int num_layers, int pp, int pp_rank) {
  const bool on_first = pp_rank == 0;
  const bool on_last = pp_rank == pp - 1;
  if (tensor.layer == kEmbeddingLayer) return on_first || (tensor.also_on_last_stage && on_last);
  if (tensor.layer == kHeadLayer) return on_last;
  const LayerRange layers = stage_layers(num_layers, pp, pp_rank);
  return layers.begin <= tensor.layer && tensor.layer < layers.end;
}

void cut(Box& box, int dim, LayerRange groups, int64_t group) {
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

std::optional<Box> shard(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank,
                         StateKind kind) {
  if (!lives_on(tensor, num_layers, layout.pp, rank.pp)) return std::nullopt;
  Box box = whole(tensor.shape);
  const int inside = layout.tp / layout.ep;  // ranks that share the experts of one ep group
  if (tensor.ep_dim >= 0) {
    cut(box, tensor.ep_dim, tp_groups_of(tensor.shape[tensor.ep_dim], layout.ep, rank.tp / inside),
        1);
  }
  if (tensor.tp_dim >= 0) {
    const int64_t size = tensor.shape[tensor.tp_dim];
    NEREUS_CHECK(size % tensor.tp_groups == 0, tensor.name + ": " +
                                                   std::to_string(tensor.tp_groups) +
                                                   " groups do not divide " + std::to_string(size));
    const bool expert = tensor.ep_dim >= 0;
    const LayerRange groups = tp_groups_of(tensor.tp_groups, expert ? inside : layout.tp,
                                           expert ? rank.tp % inside : rank.tp);
    cut(box, tensor.tp_dim, groups, size / tensor.tp_groups);
  }
  if (part_of(kind) == StatePart::kOptimizer) return zero_part(std::move(box), layout, rank);
  return box;
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
