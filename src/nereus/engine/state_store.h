// The state of all units on all devices, and moving it between them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "nereus/data/safetensors.h"
#include "nereus/engine/unit_state.h"
#include "nereus/engine/worker.h"
#include "nereus/state/reshard.h"

namespace nereus {

// Methods are called by one host thread; the work on a device runs on its worker. Units are copied
// only between steps, when no worker reads or writes them.
class StateStore final {
 public:
  explicit StateStore(const WorkerPool& workers) : workers_(workers) {}

  // The state of `device` in `emu`. Throws Error(kInternal) if there is none.
  UnitState& at(const Emu& emu, DeviceId device) const;
  bool contains(const Emu& emu) const;

  // Allocates all ranks of a unit, uninitialised.
  void create(const Emu& emu, const StateSchema& schema);
  void destroy(const Emu& emu);
  // Replaces the state of one rank, e.g. by an alias.
  void replace(const Emu& emu, DeviceId device, UnitState state);

  // Copies everything that `components` name from source units to target units (all existing) as
  // planned; step counter and weight version come along. Source and target dtypes may differ
  // (weights are converted).
  void copy(const ReshardPlan& plan, std::span<const Emu> sources, std::span<const Emu> targets,
            std::span<const StateKind> components);

  // Writes / reads logical tensors ("model.norm.weight" → global CPU tensor) of one kind of a unit.
  TensorMap gather(const Emu& emu, StateKind kind) const;
  void scatter(const Emu& emu, StateKind kind, const TensorMap& tensors);
  // Zeroes one kind of state, e.g. the moments of a new optimizer.
  void clear(const Emu& emu, StateKind kind);

  // Hash per "kind/tensor" over the logical bytes of a unit, and of its step counter: independent
  // of the layout, equal iff bit-equal.
  std::map<std::string, uint64_t> hashes(const Emu& emu) const;

 private:
  // Runs body(worker, rank index) on the unit's devices.
  void on_unit(const Emu& emu, const std::function<void(Worker&, int)>& body) const;

  const WorkerPool& workers_;
  std::map<std::pair<Emu, DeviceId>, std::unique_ptr<UnitState>> states_;
};

}  // namespace nereus
