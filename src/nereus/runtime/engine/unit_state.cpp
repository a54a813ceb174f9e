#include "nereus/runtime/engine/unit_state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nereus/core/base/error.h"
#include "nereus/runtime/data/hf_model.h"

namespace nereus {

UnitState::UnitState(const Emu& emu, const StateSchema& schema, int index, at::TensorOptions where)
    : emu_(emu), rank_(rank_at(emu.layout, index)), schema_(schema), where_(where) {
  chunks_.resize(num_chunks(schema.num_layers));
  for (const StateComponent& component : schema.components) {
    const auto part = static_cast<size_t>(part_of(component.kind));
    if (!shards_[part].empty()) continue;  // kinds of one part are cut alike
    for (const TensorSpec& tensor : schema.tensors) {
      int64_t& size = chunks_.at(chunk_of(tensor, schema.num_layers)).sizes[part];
      Shard& placed = shards_[part].emplace_back();
      placed.box = shard(tensor, schema.num_layers, emu.layout, rank_, component.kind);
      placed.offset = size;
      if (placed.box) size += volume(*placed.box);
    }
  }
}

UnitState UnitState::alias_weights(const Emu& emu, const UnitState& owner) {
  NEREUS_CHECK(owner.complete(), to_string(owner.emu()) + " is not complete");
  UnitState alias;
  alias.emu_ = emu;
  alias.rank_ = owner.rank_;
  alias.schema_ = owner.schema_;
  alias.schema_.components.resize(1);
  alias.where_ = owner.where_;
  alias.shards_ = owner.shards_;
  alias.chunks_ = owner.chunks_;
  for (Chunk& content : alias.chunks_) {
    std::erase_if(content.arenas,
                  [](const auto& arena) { return arena.first != StateKind::kWeights; });
  }
  alias.updates = owner.updates;
  alias.version = owner.version;
  return alias;
}

void UnitState::allocate(int chunk) {
  Chunk& content = chunks_.at(chunk);
  NEREUS_CHECK(content.state == ChunkState::kAbsent,
               to_string(emu_) + " has chunk " + std::to_string(chunk) + " already");
  std::map<StateKind, at::Tensor> arenas;
  for (const StateComponent& component : schema_.components) {
    const int64_t size = content.sizes[static_cast<size_t>(part_of(component.kind))];
    if (size == 0) continue;
    arenas[component.kind] = at::empty({size}, where_.dtype(scalar_type(component.dtype)));
  }
  content.arenas = std::move(arenas);
  content.state = ChunkState::kAllocated;
}

Bytes UnitState::chunk_bytes(int chunk) const {
  Bytes bytes;
  for (const StateComponent& component : schema_.components) {
    bytes += size_of(component.dtype) *
             chunks_.at(chunk).sizes[static_cast<size_t>(part_of(component.kind))];
  }
  return bytes;
}

void UnitState::mark_valid(int chunk) {
  Chunk& content = chunks_.at(chunk);
  NEREUS_CHECK(content.state == ChunkState::kAllocated,
               to_string(emu_) + ": chunk " + std::to_string(chunk) + " is not allocated");
  content.state = ChunkState::kValid;
}

void UnitState::release(int chunk) {
  Chunk& content = chunks_.at(chunk);
  content.state = ChunkState::kAbsent;
  content.arenas.clear();
}

bool UnitState::complete() const {
  return std::ranges::all_of(chunks_,
                             [](const Chunk& chunk) { return chunk.state == ChunkState::kValid; });
}

namespace {

at::Tensor view(const at::Tensor& arena, const Box& box, int64_t offset) {
  return arena.narrow(0, offset, volume(box)).view(extent(box));
}

}  // namespace

at::Tensor UnitState::tensor(int tensor, StateKind kind) const {
  const std::optional<Box>& placed = box(tensor, kind);
  NEREUS_CHECK(placed, schema_.tensors[tensor].name + " is not on this device");
  return region(tensor, kind, *placed);
}

// One operator, not one per dimension: transitions ask for thousands of regions.
at::Tensor UnitState::region(int tensor, StateKind kind, const Box& part) const {
  const Shard& placed = shards(kind)[tensor];
  const TensorSpec& spec = schema_.tensors[tensor];
  NEREUS_CHECK(placed.box, spec.name + " is not on this device");
  const at::Tensor& arena = chunks_[chunk_of(spec, schema_.num_layers)].arenas.at(kind);
  const std::vector<int64_t> shape = extent(*placed.box);
  const Box local = relative_to(part, *placed.box);
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  int64_t first = arena.storage_offset() + placed.offset;
  for (size_t d = 0; d < shape.size(); ++d) first += local.begin[d] * strides[d];
  return arena.as_strided(extent(local), strides, first);
}

std::vector<at::Tensor> UnitState::arenas(StateKind kind) const {
  std::vector<at::Tensor> found;
  for (const Chunk& content : chunks_) {
    const auto arena = content.arenas.find(kind);
    if (arena != content.arenas.end()) found.push_back(arena->second);
  }
  return found;
}

ParameterMap UnitState::weights() const { return views_of(arenas(StateKind::kWeights)); }

ParameterMap UnitState::views_of(std::span<const at::Tensor> arenas) const {
  constexpr auto kPart = static_cast<size_t>(StatePart::kWeights);
  std::vector<const at::Tensor*> arena_of(chunks_.size());
  for (size_t chunk = 0, next = 0; chunk < chunks_.size(); ++chunk) {
    if (chunks_[chunk].sizes[kPart] > 0) arena_of[chunk] = &arenas[next++];
  }
  ParameterMap views;
  for (size_t i = 0; i < schema_.tensors.size(); ++i) {
    const auto& [box, offset] = shards_[kPart][i];
    const TensorSpec& spec = schema_.tensors[i];
    if (box) views[spec.name] = view(*arena_of[chunk_of(spec, schema_.num_layers)], *box, offset);
  }
  return views;
}

}  // namespace nereus
