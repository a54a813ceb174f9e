// The state that one device holds of one unit, in one contiguous arena per chunk and kind.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "nereus/core/state/emu.h"
#include "nereus/runtime/nn/decoder.h"

namespace nereus {

enum class ChunkState {
  kAbsent,     // no memory
  kAllocated,  // memory with no meaning yet
  kValid,      // holds the logical state
};

// Used by one thread at a time: its device's worker, or the host thread between steps. In a
// transition other workers may read a chunk (sharding.h) while its owner works on other chunks.
class UnitState final {
 public:
  // Rank `index` of the unit, every chunk absent; `where` is what its tensors are made with.
  UnitState(const Emu& emu, const StateSchema& schema, int index, at::TensorOptions where);
  // Weights of another model-stage with the same shards on this device: the same bytes, no copy.
  // They live until both have released them. Requires owner.complete().
  static UnitState alias_weights(const Emu& emu, const UnitState& owner);

  const Emu& emu() const { return emu_; }
  Rank rank() const { return rank_; }
  const StateSchema& schema() const { return schema_; }

  // A chunk of which the rank holds nothing goes through the same states, without bytes.
  ChunkState chunk(int chunk) const { return chunks_.at(chunk).state; }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  // What a chunk's arenas take, whether they are there or not.
  Bytes chunk_bytes(int chunk) const;
  // Charged to the calling thread. Requires kAbsent; if it throws Error(kOutOfMemory) nothing
  // happened.
  void allocate(int chunk);
  void mark_valid(int chunk);  // requires kAllocated
  void release(int chunk);
  bool complete() const;  // every chunk is valid

  // The box of schema().tensors[tensor] that the rank holds of a kind, or nothing.
  const std::optional<Box>& box(int tensor, StateKind kind = StateKind::kWeights) const {
    return shards(kind)[tensor].box;
  }
  // A view of that shard in the arena; requires a box and an allocated chunk.
  at::Tensor tensor(int tensor, StateKind kind) const;
  // The part of that shard that `part` names in global coordinates.
  at::Tensor region(int tensor, StateKind kind, const Box& part) const;
  // One flat tensor per chunk with elements here, in order; empty if the schema lacks the kind.
  std::vector<at::Tensor> arenas(StateKind kind) const;
  // Views of all weights by name.
  ParameterMap weights() const;
  // Views of the shards in arenas shaped like arenas(kWeights), e.g. gradients, by name.
  ParameterMap views_of(std::span<const at::Tensor> arenas) const;

  int64_t updates = 0;   // optimizer steps applied: Adam's step counter
  uint64_t version = 0;  // weight version: training counts up, others carry what they were given

 private:
  UnitState() = default;
  struct Shard {
    std::optional<Box> box;
    int64_t offset = 0;  // in its chunk's arena
  };
  struct Chunk {
    ChunkState state = ChunkState::kAbsent;
    std::array<int64_t, std::size(kStateParts)> sizes{};  // elements, by part
    std::map<StateKind, at::Tensor> arenas;               // of the kinds with elements here
  };
  const std::vector<Shard>& shards(StateKind kind) const {
    return shards_[static_cast<size_t>(part_of(kind))];
  }

  Emu emu_;
  Rank rank_;
  StateSchema schema_;
  at::TensorOptions where_;
  std::array<std::vector<Shard>, std::size(kStateParts)> shards_;  // by part and schema tensor
  std::vector<Chunk> chunks_;
};

}  // namespace nereus
