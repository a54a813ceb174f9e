#include "nereus/engine/state_store.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "nereus/base/error.h"
#include "nereus/base/hash.h"

namespace nereus {

namespace {

// The part of a shard's view that `box` (global coordinates) names.
at::Tensor region(const UnitState& state, int tensor, StateKind kind, const Box& box) {
  const Box local = relative_to(box, *state.box(tensor));
  at::Tensor view = state.tensor(tensor, kind);
  for (size_t d = 0; d < local.begin.size(); ++d) {
    view = view.narrow(static_cast<int64_t>(d), local.begin[d], local.end[d] - local.begin[d]);
  }
  return view;
}

at::Tensor region(const at::Tensor& global, const Box& box) {
  at::Tensor view = global;
  for (size_t d = 0; d < box.begin.size(); ++d) {
    view = view.narrow(static_cast<int64_t>(d), box.begin[d], box.end[d] - box.begin[d]);
  }
  return view;
}

void nothing_to_abort(const std::string&) {}

}  // namespace

UnitState& StateStore::at(const Emu& emu, DeviceId device) const {
  const auto found = states_.find({emu, device});
  NEREUS_CHECK(found != states_.end(),
               "no state of " + to_string(emu) + " on " + to_string(device));
  return *found->second;
}

bool StateStore::contains(const Emu& emu) const {
  return states_.contains({emu, emu.devices.front()});
}

void StateStore::on_unit(const Emu& emu, const std::function<void(Worker&, int)>& body) const {
  workers_.run(
      emu.devices, [&](Worker& worker) { body(worker, index_of(emu, worker.id())); },
      nothing_to_abort);
}

void StateStore::create(const Emu& emu, const StateSchema& schema) {
  NEREUS_CHECK(!contains(emu), to_string(emu) + " exists already");
  std::vector<std::unique_ptr<UnitState>> created(emu.devices.size());
  on_unit(emu, [&](Worker& worker, int index) {
    created[index] = std::make_unique<UnitState>(emu, schema, index, worker.compute());
  });
  for (size_t i = 0; i < created.size(); ++i) {
    states_[{emu, emu.devices[i]}] = std::move(created[i]);
  }
}

void StateStore::destroy(const Emu& emu) {
  for (const DeviceId device : emu.devices) states_.erase({emu, device});
}

void StateStore::replace(const Emu& emu, DeviceId device, UnitState state) {
  states_[{emu, device}] = std::make_unique<UnitState>(std::move(state));
}

void StateStore::copy(const ReshardPlan& plan, std::span<const Emu> sources,
                      std::span<const Emu> targets, std::span<const StateKind> components) {
  std::map<DeviceId, std::vector<const Move*>> arriving;
  for (const Move& move : plan.moves) arriving[move.to].push_back(&move);
  std::vector<DeviceId> devices;
  devices.reserve(arriving.size());
  for (const auto& [device, moves] : arriving) devices.push_back(device);

  workers_.run(
      devices,
      [&](Worker& worker) {
        const c10::InferenceMode no_autograd;
        for (const Move* move : arriving.at(worker.id())) {
          const UnitState& source = at(sources[move->source_unit], move->from);
          const UnitState& target = at(targets[move->target_unit], move->to);
          for (const StateKind kind : components) {
            region(target, move->tensor, kind, move->box)
                .copy_(region(source, move->tensor, kind, move->box));
          }
        }
      },
      nothing_to_abort);

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
  for (size_t rank = 0; rank < emu.devices.size(); ++rank) {
    const UnitState& state = at(emu, emu.devices[rank]);
    const StateSchema& schema = state.schema();
    if (state.arenas(kind).empty()) return logical;
    for (int i = 0; i < static_cast<int>(schema.tensors.size()); ++i) {
      const TensorSpec& tensor = schema.tensors[i];
      if (!state.box(i) || !is_primary(tensor, schema.num_layers, emu.layout, state.rank())) {
        continue;
      }
      const at::Tensor shard = state.tensor(i, kind);
      at::Tensor& global = logical[tensor.name];
      if (!global.defined()) global = at::empty(tensor.shape, shard.options().device(at::kCPU));
      region(global, *state.box(i)).copy_(shard);
    }
  }
  return logical;
}

void StateStore::scatter(const Emu& emu, StateKind kind, const TensorMap& tensors) {
  on_unit(emu, [&](Worker& worker, int) {
    const c10::InferenceMode no_autograd;
    const UnitState& state = at(emu, worker.id());
    for (int i = 0; i < static_cast<int>(state.schema().tensors.size()); ++i) {
      if (!state.box(i)) continue;
      const std::string& name = state.schema().tensors[i].name;
      const auto found = tensors.find(name);
      NEREUS_CHECK(found != tensors.end(), "no tensor " + name + " to load");
      state.tensor(i, kind).copy_(region(found->second, *state.box(i)));
    }
  });
}

void StateStore::clear(const Emu& emu, StateKind kind) {
  for (const DeviceId device : emu.devices) {
    for (const at::Tensor& arena : at(emu, device).arenas(kind)) arena.zero_();
  }
}

std::map<std::string, uint64_t> StateStore::hashes(const Emu& emu) const {
  const UnitState& first = at(emu, emu.devices.front());
  std::map<std::string, uint64_t> hashes;
  for (const StateComponent& component : first.schema().components) {
    for (const auto& [name, tensor] : gather(emu, component.kind)) {
      const std::span bytes(static_cast<const std::byte*>(tensor.const_data_ptr()),
                            tensor.nbytes());
      hashes[to_string(component.kind) + "/" + name] = hash_bytes(bytes);
    }
  }
  hashes["updates"] = static_cast<uint64_t>(first.updates);
  return hashes;
}

}  // namespace nereus
