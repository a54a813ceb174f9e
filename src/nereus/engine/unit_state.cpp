#include "nereus/engine/unit_state.h"

#include <ATen/ATen.h>

#include "nereus/base/error.h"
#include "nereus/data/hf_model.h"

namespace nereus {

UnitState::UnitState(const Emu& emu, const StateSchema& schema, int index, at::Device device)
    : emu_(emu), rank_(rank_at(emu.layout, index)), schema_(schema) {
  std::vector<int64_t> arena_sizes;
  std::map<int, int> arena_of_layer;
  for (const TensorSpec& tensor : schema.tensors) {
    Shard& placed = shards_.emplace_back();
    placed.box = shard(tensor, schema.num_layers, emu.layout, rank_);
    if (!placed.box) continue;
    const auto [entry, is_new] =
        arena_of_layer.try_emplace(tensor.layer, static_cast<int>(arena_sizes.size()));
    if (is_new) arena_sizes.push_back(0);
    placed.arena = entry->second;
    placed.offset = arena_sizes[placed.arena];
    arena_sizes[placed.arena] += volume(*placed.box);
  }
  for (const StateComponent& component : schema.components) {
    const auto options = at::device(device).dtype(scalar_type(component.dtype));
    for (const int64_t size : arena_sizes) {
      arenas_[component.kind].push_back(at::empty({size}, options));
    }
  }
}

UnitState UnitState::alias_weights(const Emu& emu, const UnitState& owner) {
  UnitState alias;
  alias.emu_ = emu;
  alias.rank_ = owner.rank_;
  alias.schema_ = owner.schema_;
  alias.schema_.components.resize(1);
  alias.shards_ = owner.shards_;
  alias.arenas_[StateKind::kWeights] = owner.arenas_.at(StateKind::kWeights);
  alias.updates = owner.updates;
  alias.version = owner.version;
  return alias;
}

at::Tensor UnitState::view(const at::Tensor& arena, int tensor) const {
  const Shard& placed = shards_[tensor];
  return arena.narrow(0, placed.offset, volume(*placed.box)).view(extent(*placed.box));
}

at::Tensor UnitState::tensor(int tensor, StateKind kind) const {
  NEREUS_CHECK(shards_[tensor].box, schema_.tensors[tensor].name + " is not on this device");
  return view(arenas_.at(kind)[shards_[tensor].arena], tensor);
}

std::span<const at::Tensor> UnitState::arenas(StateKind kind) const {
  const auto found = arenas_.find(kind);
  if (found == arenas_.end()) return {};
  return found->second;
}

ParameterMap UnitState::weights() const { return views_of(arenas(StateKind::kWeights)); }

ParameterMap UnitState::views_of(std::span<const at::Tensor> arenas) const {
  ParameterMap views;
  for (int i = 0; i < static_cast<int>(shards_.size()); ++i) {
    if (shards_[i].box) views[schema_.tensors[i].name] = view(arenas[shards_[i].arena], i);
  }
  return views;
}

}  // namespace nereus
