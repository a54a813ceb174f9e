// What a layout means, written once: which box of which tensor each rank holds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nereus/core/model/tensor_spec.h"
#include "nereus/core/plan/plan.h"
#include "nereus/core/state/box.h"

namespace nereus {

// The kinds of logical state a tensor carries.
enum class StateKind { kWeights, kMaster, kExpAvg, kExpAvgSq };
std::string to_string(StateKind kind);  // "weights", "master", "exp_avg", "exp_avg_sq"

// Kinds of one part are cut alike: master copy and moments are optimizer state.
enum class StatePart { kWeights, kOptimizer };
inline constexpr StatePart kStateParts[] = {StatePart::kWeights, StatePart::kOptimizer};
StatePart part_of(StateKind kind);
std::string to_string(StatePart part);  // "weights", "optimizer state"

struct LayerRange {
  int begin = 0;
  int end = 0;
  bool operator==(const LayerRange&) const = default;
};

// The transformer blocks of pipeline stage `pp_rank` of `pp`. If pp does not divide num_layers, the
// first stages hold one block more. The first stage also holds the embedding, the last one the
// final norm and the head.
LayerRange stage_layers(int num_layers, int pp, int pp_rank);

// A model in pieces that move one after the other. Chunk 0 is the embedding, 1 … num_layers are the
// blocks, num_layers + 1 is the head.
int num_chunks(int num_layers);
int chunk_of(const TensorSpec& tensor, int num_layers);
// The chunks of a pipeline stage: stage_layers() and the ends. A tied embedding lives on the last
// stage too.
LayerRange stage_chunks(int num_layers, int pp, int pp_rank);
bool lives_on(const TensorSpec& tensor, int num_layers, int pp, int pp_rank);

// The half-open range of groups that `tp_rank` of `tp` holds of `groups` indivisible groups:
// balanced cut if tp <= groups, else neighbouring ranks share one group.
LayerRange tp_groups_of(int64_t groups, int tp, int tp_rank);

// The box of `tensor` that `rank` holds of a part of the state under `layout`, on whichever
// pipeline stage the tensor lives, or nothing. tp cuts the groups along tp_dim; tensors of experts
// are cut along ep_dim into one part for each ep group of tp / ep neighbouring ranks, and along
// tp_dim within the group. Weights are the same on all zero ranks; optimizer state is the weights'
// box cut once more, along dimension 0 into zero balanced parts, of which some may be empty:
// nothing.
std::optional<Box> cut(const TensorSpec& tensor, Layout layout, Rank rank, StatePart part);
// What `rank` holds of a kind of state: the same, or nothing if the tensor lives on another stage.
std::optional<Box> shard(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank,
                         StateKind kind = StateKind::kWeights);

// The ranks of one unit that hold exactly the same box as `rank` does, in rank order, `rank`
// included: one rank for a cut tensor, several for replicated ones, shared KV heads, tied
// embeddings and weights under ZeRO.
std::vector<Rank> holders(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank,
                          StateKind kind = StateKind::kWeights);
// True on the first of holders(): counts each logical element exactly once over a unit.
bool is_primary(const TensorSpec& tensor, int num_layers, Layout layout, Rank rank,
                StateKind kind = StateKind::kWeights);

}  // namespace nereus
