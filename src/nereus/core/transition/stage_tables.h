// Bytes of one model-stage's state under the layouts that a transition meets.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "nereus/core/cluster/cluster.h"
#include "nereus/core/state/overlap.h"

namespace nereus {

// What a device holds of a unit: a rank of a layout.
struct Holding {
  Layout layout;
  int index = 0;
};

// Tables are made when they are first asked for and kept. Not thread-safe.
class StageTables final {
 public:
  explicit StageTables(const StateSchema& schema) : summary_(summarize(schema)) {}

  Bytes rank_bytes(Layout layout, int index);
  const OverlapTable& overlap(Layout from, Layout to);
  // Most that the usage of a device grows by while it takes one holding and gives up the other,
  // layer by layer: a layer comes, then the old layer goes.
  Bytes chunked_rise(const std::optional<Holding>& taken, const std::optional<Holding>& freed);
  // The largest layer of a holding.
  Bytes largest_layer(Holding holding);

 private:
  struct LayoutBytes {
    Layout layout;
    std::vector<std::vector<Bytes>> layers;  // by index, then by layer in pipeline order
    std::vector<Bytes> ranks;                // their sums
  };
  struct Overlap {
    Layout from;
    Layout to;
    OverlapTable table;
  };
  struct Rise {
    Holding taken;
    Holding freed;
    Bytes bytes;
  };
  const LayoutBytes& bytes_of(Layout layout);

  SchemaSummary summary_;
  // Few, so that searching them is faster than hashing; a deque keeps references valid.
  std::deque<LayoutBytes> layouts_;
  std::deque<Overlap> overlaps_;
  std::vector<Rise> rises_;
};

}  // namespace nereus
