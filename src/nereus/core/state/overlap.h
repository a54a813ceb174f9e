// How many bytes two ranks have in common, without a loop over the tensors of a model.
#pragma once

#include <vector>

#include "nereus/core/state/emu.h"

namespace nereus {

// The tensors of a schema in groups that are cut alike and differ only in where they live.
struct SchemaSummary {
  struct Group {
    TensorSpec like;          // one of them
    std::vector<int> before;  // [c]: how many of them live in chunks before c (sharding.h)
  };
  std::vector<Group> groups;
  int num_layers = 0;
  Bytes weight_bytes;     // per element
  Bytes optimizer_bytes;  // per element
};
SchemaSummary summarize(const StateSchema& schema);

// For every rank of a unit under `from` and every rank of one under `to`: the bytes of state that
// both hold. Indices are in rank order.
class OverlapTable {
 public:
  OverlapTable(const SchemaSummary& summary, Layout from, Layout to);

  Bytes rank_bytes(int to_index) const { return rank_bytes_[to_index]; }  // as state_bytes()
  Bytes common(int from_index, int to_index) const {
    return common_[to_index * from_ranks_ + from_index];
  }

 private:
  int from_ranks_ = 0;
  std::vector<Bytes> rank_bytes_;
  std::vector<Bytes> common_;  // by to_index, then from_index
};

// The bytes of each chunk (embedding, layer 0 … L-1, head) that the rank at `index` holds.
std::vector<Bytes> layer_bytes(const SchemaSummary& summary, Layout layout, int index);

}  // namespace nereus
