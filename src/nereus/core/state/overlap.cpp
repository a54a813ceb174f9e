#include "nereus/core/state/overlap.h"

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
  std::vector<std::optional<Box>> optimizer;  // empty if no rank's differs from its weights
};

Cuts cuts_of(const TensorSpec& tensor, Layout layout) {
  Cuts cuts;
  cuts.weights.reserve(static_cast<size_t>(layout.zero) * layout.tp);
  for (int zero = 0; zero < layout.zero; ++zero) {
    for (int tp = 0; tp < layout.tp; ++tp) {
      const Rank rank{.tp = tp, .zero = zero};
      cuts.weights.push_back(*cut(tensor, layout, rank, StatePart::kWeights));
      if (layout.zero == 1) continue;
      cuts.optimizer.push_back(cut(tensor, layout, rank, StatePart::kOptimizer));
    }
  }
  return cuts;
}

const Box* optimizer_box(const Cuts& cuts, int place) {
  if (cuts.optimizer.empty()) return &cuts.weights[place];
  return cuts.optimizer[place] ? &*cuts.optimizer[place] : nullptr;
}

// Where a rank is found in Cuts, and the chunks of its pipeline stage.
struct Place {
  int cut = 0;
  LayerRange chunks;
};

std::vector<Place> places_of(Layout layout, int num_layers) {
  std::vector<Place> places;
  for (int index = 0; index < layout.devices(); ++index) {
    const Rank rank = rank_at(layout, index);
    places.push_back(
        {rank.zero * layout.tp + rank.tp, stage_chunks(num_layers, layout.pp, rank.pp)});
  }
  return places;
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

// Bytes of one tensor of a group that cut `a` of one layout and cut `b` of another have in common.
int64_t common_bytes(const SchemaSummary& summary, const Cuts& from, int a, const Cuts& to, int b) {
  const int64_t weights = common_volume(from.weights[a], to.weights[b]);
  if (weights == 0) return 0;
  const Box *mine = optimizer_box(from, a), *other = optimizer_box(to, b);
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
  const auto sources = places_of(from, summary.num_layers);
  const auto targets = places_of(to, summary.num_layers);
  for (const SchemaSummary::Group& group : summary.groups) {
    const Cuts from_cuts = cuts_of(group.like, from);
    const Cuts to_cuts = cuts_of(group.like, to);
    auto common = common_.begin();
    for (size_t t = 0; t < targets.size(); ++t) {
      const auto [to_cut, chunks] = targets[t];
      rank_bytes_[t] += Bytes(count_common(group, chunks, chunks) *
                              common_bytes(summary, to_cuts, to_cut, to_cuts, to_cut));
      for (const Place& source : sources) {
        const int count = count_common(group, source.chunks, chunks);
        const int64_t each =
            count > 0 ? common_bytes(summary, from_cuts, source.cut, to_cuts, to_cut) : 0;
        *common++ += Bytes(count * each);
      }
    }
  }
}

std::vector<Bytes> layer_bytes(const SchemaSummary& summary, Layout layout, int index) {
  const auto [own, held] = places_of(layout, summary.num_layers)[index];
  std::vector<Bytes> bytes(static_cast<size_t>(num_chunks(summary.num_layers)));
  for (const SchemaSummary::Group& group : summary.groups) {
    const Cuts cuts = cuts_of(group.like, layout);
    const int64_t each = common_bytes(summary, cuts, own, cuts, own);
    for (int chunk = 0; chunk < static_cast<int>(bytes.size()); ++chunk) {
      if (group.before[chunk] == group.before[chunk + 1]) continue;  // none of them is there
      bytes[chunk] += Bytes(count_common(group, held, {chunk, chunk + 1}) * each);
    }
  }
  return bytes;
}

}  // namespace nereus
