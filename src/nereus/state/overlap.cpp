#include "nereus/state/overlap.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>

namespace nereus {

namespace {

bool cut_alike(const TensorSpec& a, const TensorSpec& b) {
  return a.shape == b.shape && a.tp_dim == b.tp_dim && a.tp_groups == b.tp_groups &&
         a.ep_dim == b.ep_dim && a.also_on_last_stage == b.also_on_last_stage;
}

// What the ranks of a layout hold of one tensor of a group, by (zero, tp): the same on every
// pipeline stage that holds it.
struct Cuts {
  std::vector<Box> weights;
  std::vector<std::optional<Box>> optimizer;
};

Cuts cuts_of(const TensorSpec& tensor, Layout layout) {
  Cuts cuts;
  for (int zero = 0; zero < layout.zero; ++zero) {
    for (int tp = 0; tp < layout.tp; ++tp) {
      const Rank rank{.tp = tp, .zero = zero};
      cuts.weights.push_back(*cut(tensor, layout, rank, StatePart::kWeights));
      cuts.optimizer.push_back(cut(tensor, layout, rank, StatePart::kOptimizer));
    }
  }
  return cuts;
}

int place_of(Layout layout, Rank rank) { return rank.zero * layout.tp + rank.tp; }

std::vector<LayerRange> all_stage_chunks(int num_layers, int pp) {
  std::vector<LayerRange> chunks;
  for (int rank = 0; rank < pp; ++rank) chunks.push_back(stage_chunks(num_layers, pp, rank));
  return chunks;
}

// How many tensors of the group live both on a stage with chunks `a` and on one with chunks `b`. A
// tied embedding lives on both ends.
int count_common(const SchemaSummary::Group& group, LayerRange a, LayerRange b) {
  if (group.like.also_on_last_stage) {
    const int chunks = static_cast<int>(group.before.size()) - 1;
    const auto at_an_end = [&](LayerRange range) {
      return range.begin == 0 || range.end == chunks;
    };
    return at_an_end(a) && at_an_end(b) ? group.before.back() : 0;
  }
  const int begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return begin < end ? group.before[end] - group.before[begin] : 0;
}

// Bytes of one tensor of a group that place `a` and place `b` have in common.
int64_t common_bytes(const SchemaSummary& summary, const Cuts& from, int a, const Cuts& to, int b) {
  const int64_t weights = common_volume(from.weights[a], to.weights[b]);
  const auto &mine = from.optimizer[a], &other = to.optimizer[b];
  const int64_t optimizer = mine && other ? common_volume(*mine, *other) : 0;
  return weights * summary.weight_bytes.count() + optimizer * summary.optimizer_bytes.count();
}

}  // namespace

SchemaSummary summarize(const StateSchema& schema) {
  SchemaSummary summary{.num_layers = schema.num_layers,
                        .weight_bytes = schema.bytes_per_element(StatePart::kWeights),
                        .optimizer_bytes = schema.bytes_per_element(StatePart::kOptimizer)};
  const auto chunks = static_cast<size_t>(num_chunks(schema.num_layers));
  for (const TensorSpec& tensor : schema.tensors) {
    auto group = std::ranges::find_if(
        summary.groups, [&](const auto& known) { return cut_alike(known.like, tensor); });
    if (group == summary.groups.end()) {
      group = summary.groups.insert(group, {tensor, std::vector<int>(chunks + 1, 0)});
    }
    ++group->before[static_cast<size_t>(chunk_of(tensor, schema.num_layers)) + 1];
  }
  for (auto& group : summary.groups) {
    std::partial_sum(group.before.begin(), group.before.end(), group.before.begin());
  }
  return summary;
}

OverlapTable::OverlapTable(const SchemaSummary& summary, Layout from, Layout to)
    : from_ranks_(from.devices()),
      rank_bytes_(static_cast<size_t>(to.devices())),
      common_(rank_bytes_.size() * static_cast<size_t>(from_ranks_)) {
  const auto from_chunks = all_stage_chunks(summary.num_layers, from.pp);
  const auto to_chunks = all_stage_chunks(summary.num_layers, to.pp);
  for (const SchemaSummary::Group& group : summary.groups) {
    const Cuts from_cuts = cuts_of(group.like, from);
    const Cuts to_cuts = cuts_of(group.like, to);
    for (int t = 0; t < to.devices(); ++t) {
      const Rank to_rank = rank_at(to, t);
      const LayerRange chunks = to_chunks[to_rank.pp];
      const int place = place_of(to, to_rank);
      rank_bytes_[t] += Bytes(count_common(group, chunks, chunks) *
                              common_bytes(summary, to_cuts, place, to_cuts, place));
      for (int f = 0; f < from_ranks_; ++f) {
        const Rank from_rank = rank_at(from, f);
        const int count = count_common(group, from_chunks[from_rank.pp], chunks);
        if (count == 0) continue;
        common_[t * from_ranks_ + f] += Bytes(
            count * common_bytes(summary, from_cuts, place_of(from, from_rank), to_cuts, place));
      }
    }
  }
}

std::vector<Bytes> layer_bytes(const SchemaSummary& summary, Layout layout, int index) {
  const Rank rank = rank_at(layout, index);
  const int place = place_of(layout, rank);
  const LayerRange held = stage_chunks(summary.num_layers, layout.pp, rank.pp);
  std::vector<Bytes> bytes(static_cast<size_t>(num_chunks(summary.num_layers)));
  for (const SchemaSummary::Group& group : summary.groups) {
    const Cuts cuts = cuts_of(group.like, layout);
    const int64_t each = common_bytes(summary, cuts, place, cuts, place);
    for (int chunk = 0; chunk < static_cast<int>(bytes.size()); ++chunk) {
      if (group.before[chunk] == group.before[chunk + 1]) continue;  // none of them is there
      const int count = count_common(group, held, {chunk, chunk + 1});
      bytes[chunk] += Bytes(count * each);
    }
  }
  return bytes;
}

}  // namespace nereus
