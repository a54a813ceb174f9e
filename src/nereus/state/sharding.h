// What a layout means, written once: which box of which tensor each rank holds.
#pragma once

#include <optional>
#include <vector>

#include "nereus/model/tensor_spec.h"
#include "nereus/plan/plan.h"
#include "nereus/state/box.h"

namespace nereus {

struct LayerRange {
  int begin = 0;
  int end = 0;
  bool operator==(const LayerRange&) const = default;
};

// The transformer blocks of pipeline stage `pp_rank` of `pp`. If pp does not divide num_layers, the
// first stages hold one block more. The first stage also holds the embedding, the last one the
// final norm and the head.
LayerRange stage_layers(int num_layers, int pp, int pp_rank);

// The half-open range of groups that `tp_rank` of `tp` holds of `groups` indivisible groups:
// balanced cut if tp <= groups, else neighbouring ranks share one group.
LayerRange tp_groups_of(int64_t groups, int tp, int tp_rank);

// The box of `tensor` that `rank` holds under `layout`, or nothing if the tensor lives on another
// pipeline stage.
std::optional<Box> shard(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank);

// The ranks of one unit that hold exactly the same box as `rank` does, in rank order, `rank`
// included: one rank for a cut tensor, several for replicated ones, shared KV heads and tied
// embeddings.
std::vector<Rank> holders(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank);
// True on the first of holders(): counts each logical element exactly once over a unit.
bool is_primary(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank);

}  // namespace nereus
