#include "nereus/runtime/engine/state_store.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <set>

#include "nereus/core/base/error.h"
#include "nereus/runtime/engine/state_copier.h"
#include "nereus/runtime/engine/state_hash.h"

namespace nereus {

namespace {

at::Tensor region(const at::Tensor& global, const Box& box) {
  at::Tensor view = global;
  for (size_t d = 0; d < box.begin.size(); ++d) {
    view = view.narrow(static_cast<int64_t>(d), box.begin[d], box.end[d] - box.begin[d]);
  }
  return view;
}

// Calls visit(tensor index, its view, its box) for each shard that counts once over the unit.
template <class Visit>
void for_each_primary(const UnitState& state, StateKind kind, const Visit& visit) {
  const StateSchema& schema = state.schema();
  for (int i = 0; i < static_cast<int>(schema.tensors.size()); ++i) {
    const std::optional<Box>& box = state.box(i, kind);
    if (box &&
        is_primary(schema.tensors[i], schema.num_layers, state.emu().layout, state.rank(), kind)) {
      visit(i, state.tensor(i, kind), *box);
    }
  }
}

void nothing_to_abort(const std::string&) {}

}  // namespace

UnitState* StateStore::find(const Emu& emu, DeviceId device) const {
  const std::lock_guard lock(mutex_);
  const auto found = states_.find({emu, device});
  return found == states_.end() ? nullptr : found->second.get();
}

UnitState& StateStore::at(const Emu& emu, DeviceId device) const {
  UnitState* state = find(emu, device);
  NEREUS_CHECK(state != nullptr, "no state of " + to_string(emu) + " on " + to_string(device));
  return *state;
}

bool StateStore::contains(const Emu& emu) const {
  return std::ranges::all_of(emu.devices, [&](DeviceId device) {
    const UnitState* state = find(emu, device);
    return state != nullptr && state->complete();
  });
}

EmuCollection StateStore::units() const {
  const std::lock_guard lock(mutex_);
  std::set<Emu> units;
  for (const auto& [key, state] : states_) units.insert(key.first);
  return {units.begin(), units.end()};
}

bool StateStore::holds(const Emu& emu, DeviceId device, int chunk) const {
  const UnitState* state = find(emu, device);
  return state != nullptr && state->chunk(chunk) == ChunkState::kValid;
}

void StateStore::prepare(const Emu& emu, const StateSchema& schema) {
  for (size_t index = 0; index < emu.devices.size(); ++index) {
    const DeviceId device = emu.devices[index];
    if (find(emu, device) != nullptr) continue;
    auto state = std::make_unique<UnitState>(emu, schema, static_cast<int>(index),
                                             workers_.at(device).where());
    const std::lock_guard lock(mutex_);
    states_[{emu, device}] = std::move(state);
  }
}

void StateStore::create(const Emu& emu, const StateSchema& schema) {
  NEREUS_CHECK(find(emu, emu.devices.front()) == nullptr, to_string(emu) + " exists already");
  prepare(emu, schema);
  const auto allocate = [&](Worker& worker) {
    UnitState& state = at(emu, worker.id());
    for (int chunk = 0; chunk < state.chunks(); ++chunk) {
      state.allocate(chunk);
      state.mark_valid(chunk);
    }
  };
  try {
    workers_.run(emu.devices, allocate, nothing_to_abort);
  } catch (const Error&) {
    destroy(emu);
    throw;
  }
}

void StateStore::destroy(const Emu& emu) {
  const std::lock_guard lock(mutex_);
  for (const DeviceId device : emu.devices) states_.erase({emu, device});
}

void StateStore::replace(const Emu& emu, DeviceId device, UnitState state) {
  const std::lock_guard lock(mutex_);
  states_[{emu, device}] = std::make_unique<UnitState>(std::move(state));
}

void StateStore::drop(DeviceId device) {
  const std::lock_guard lock(mutex_);
  std::erase_if(states_, [&](const auto& entry) { return entry.first.second == device; });
}

void StateStore::copy(const ReshardPlan& plan, std::span<const Emu> sources,
                      std::span<const Emu> targets) {
  std::map<DeviceId, std::vector<const Move*>> arriving;
  for (const Move& move : plan.moves) arriving[move.to].push_back(&move);
  std::vector<DeviceId> devices;
  devices.reserve(arriving.size());
  for (const auto& [device, moves] : arriving) devices.push_back(device);

  const auto receive = [&](Worker& worker) {
    StateCopier copier;
    for (const Move* move : arriving.at(worker.id())) {
      copier.add(at(sources[move->source_unit], move->from),
                 at(targets[move->target_unit], move->to), *move);
    }
    copier.enqueue();
    copier.join();
    worker.synchronise();
  };
  workers_.run(devices, receive, nothing_to_abort);

  const UnitState& source = at(sources.front(), sources.front().devices.front());
  for (const Emu& target : targets) {
    for (const DeviceId device : target.devices) {
      at(target, device).updates = source.updates;
      at(target, device).version = source.version;
    }
  }
}

TensorMap StateStore::gather(const Emu& emu, StateKind kind) const {
  const c10::InferenceMode no_autograd;
  TensorMap logical;
  for (const DeviceId device : emu.devices) {
    const UnitState& state = at(emu, device);
    for_each_primary(state, kind, [&](int tensor, const at::Tensor& shard, const Box& box) {
      const TensorSpec& spec = state.schema().tensors[tensor];
      at::Tensor& global = logical[spec.name];
      if (!global.defined()) global = at::empty(spec.shape, shard.options().device(at::kCPU));
      region(global, box).copy_(shard);
    });
  }
  return logical;
}

void StateStore::scatter(const Emu& emu, StateKind kind, const TensorMap& tensors) {
  const auto fill = [&](Worker& worker) {
    const c10::InferenceMode no_autograd;
    const UnitState& state = at(emu, worker.id());
    for (int i = 0; i < static_cast<int>(state.schema().tensors.size()); ++i) {
      const std::optional<Box>& box = state.box(i, kind);
      if (!box) continue;
      const std::string& name = state.schema().tensors[i].name;
      const auto found = tensors.find(name);
      NEREUS_CHECK(found != tensors.end(), "no tensor " + name + " to load");
      state.tensor(i, kind).copy_(region(found->second, *box));
    }
    worker.synchronise();
  };
  workers_.run(emu.devices, fill, nothing_to_abort);
}

void StateStore::clear(const Emu& emu, StateKind kind) {
  const auto zero = [&](Worker& worker) {
    for (const at::Tensor& arena : at(emu, worker.id()).arenas(kind)) arena.zero_();
    worker.synchronise();
  };
  workers_.run(emu.devices, zero, nothing_to_abort);
}

std::map<std::string, uint64_t> StateStore::hashes(const Emu& emu,
                                                   const WorkerPool& workers) const {
  std::map<std::string, uint64_t> sums;
  std::mutex mutex;
  const auto add_part = [&](Worker& worker) {
    const UnitState& state = at(emu, worker.id());
    const StateSchema& schema = state.schema();
    std::vector<std::string> names;
    ShardHashes hashes(worker.where().device(), schema.components.size() * schema.tensors.size());
    for (const StateComponent& component : schema.components) {
      for_each_primary(state, component.kind, [&](int i, const at::Tensor& shard, const Box& box) {
        hashes.add(names.size(), shard, box, schema.tensors[i].shape);
        names.push_back(to_string(component.kind) + "/" + schema.tensors[i].name);
      });
    }
    const std::vector<uint64_t> parts = hashes.take();
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < names.size(); ++i) sums[names[i]] += parts[i];
  };
  workers.run(emu.devices, add_part, nothing_to_abort);
  sums["updates"] = static_cast<uint64_t>(at(emu, emu.devices.front()).updates);
  return sums;
}

}  // namespace nereus
