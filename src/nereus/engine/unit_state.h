// The state that one device holds of one unit, in one contiguous arena per layer and kind.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "nereus/nn/decoder.h"
#include "nereus/state/emu.h"

namespace nereus {

// Owned by the live job, used by one thread at a time: its device's worker, or the host thread
// between steps. Memory is charged to the thread that constructs it.
class UnitState final {
 public:
  // Uninitialised state of rank `index` of the unit.
  UnitState(const Emu& emu, const StateSchema& schema, int index, at::Device device);
  // Weights of another model-stage with the same shards on this device: the same bytes, no copy.
  static UnitState alias_weights(const Emu& emu, const UnitState& owner);

  const Emu& emu() const { return emu_; }
  Rank rank() const { return rank_; }
  const StateSchema& schema() const { return schema_; }

  // The box of schema().tensors[tensor] that is here, or nothing.
  const std::optional<Box>& box(int tensor) const { return shards_[tensor].box; }
  // A view of that shard in the arena; requires box(tensor).
  at::Tensor tensor(int tensor, StateKind kind) const;
  // One flat tensor per layer held here, in layer order; empty if the schema lacks the kind.
  std::span<const at::Tensor> arenas(StateKind kind) const;
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
    int arena = 0;
    int64_t offset = 0;
  };
  at::Tensor view(const at::Tensor& arena, int tensor) const;

  Emu emu_;
  Rank rank_;
  StateSchema schema_;
  std::vector<Shard> shards_;  // per schema tensor
  std::map<StateKind, std::vector<at::Tensor>> arenas_;
};

}  // namespace nereus
