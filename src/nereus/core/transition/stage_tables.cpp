#include "nereus/core/transition/stage_tables.h"

#include <algorithm>
#include <numeric>

#include "nereus/core/transition/primitive.h"

namespace nereus {

namespace {

bool operator==(const Holding& a, const Holding& b) {
  return a.index == b.index && a.layout == b.layout;
}

}  // namespace

const StageTables::LayoutBytes& StageTables::bytes_of(Layout layout) {
  const auto found = std::ranges::find(layouts_, layout, &LayoutBytes::layout);
  if (found != layouts_.end()) return *found;
  LayoutBytes& entry = layouts_.emplace_back(LayoutBytes{layout, {}, {}});
  for (int index = 0; index < layout.devices(); ++index) {
    const auto& layers = entry.layers.emplace_back(layer_bytes(summary_, layout, index));
    entry.ranks.push_back(std::accumulate(layers.begin(), layers.end(), Bytes()));
  }
  return entry;
}

Bytes StageTables::rank_bytes(Layout layout, int index) { return bytes_of(layout).ranks[index]; }

const OverlapTable& StageTables::overlap(Layout from, Layout to) {
  for (const Overlap& overlap : overlaps_) {
    if (overlap.from == from && overlap.to == to) return overlap.table;
  }
  return overlaps_.emplace_back(Overlap{from, to, OverlapTable(summary_, from, to)}).table;
}

Bytes StageTables::chunked_rise(const std::optional<Holding>& taken,
                                const std::optional<Holding>& freed) {
  if (!taken) return {};
  if (!freed) return rank_bytes(taken->layout, taken->index);
  for (const Rise& known : rises_) {
    if (known.taken == *taken && known.freed == *freed) return known.bytes;
  }
  const std::vector<Bytes>& come = bytes_of(taken->layout).layers[taken->index];
  const std::vector<Bytes>& go = bytes_of(freed->layout).layers[freed->index];
  Bytes usage;
  Bytes most;
  for (const int layer : chunk_order(summary_.num_layers, freed->layout.pp, taken->layout.pp)) {
    usage += come[layer];
    most = std::max(most, usage);
    usage -= go[layer];
  }
  rises_.push_back({*taken, *freed, most});
  return most;
}

Bytes StageTables::largest_layer(Holding holding) {
  return std::ranges::max(bytes_of(holding.layout).layers[holding.index]);
}

}  // namespace nereus
