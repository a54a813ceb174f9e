// The state of all units on all devices, and moving it between them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "nereus/core/state/reshard.h"
#include "nereus/runtime/data/safetensors.h"
#include "nereus/runtime/engine/unit_state.h"
#include "nereus/runtime/engine/worker.h"

namespace nereus {

// Host threads may look up, add and remove different units at once; the work on a device runs on
// its worker. A unit is copied or hashed only while nobody writes it.
class StateStore final {
 public:
  explicit StateStore(const WorkerPool& workers) : workers_(workers) {}

  const WorkerPool& workers() const { return workers_; }

  // The state of `device` in `emu`, or nullptr.
  UnitState* find(const Emu& emu, DeviceId device) const;
  // The same, throws Error(kInternal) if there is none.
  UnitState& at(const Emu& emu, DeviceId device) const;
  // True if every rank of the unit is there and complete.
  bool contains(const Emu& emu) const;
  // Every unit of which some rank is there, sorted.
  EmuCollection units() const;
  // Whether the device holds its part of a chunk (sharding.h) of a unit.
  bool holds(const Emu& emu, DeviceId device, int chunk) const;

  // Adds the ranks of a unit that are missing, without memory: to be allocated chunk by chunk.
  void prepare(const Emu& emu, const StateSchema& schema);
  // Makes a whole new unit. Its bytes are uninitialised: the caller fills them at once.
  void create(const Emu& emu, const StateSchema& schema);
  void destroy(const Emu& emu);
  // Replaces the state of one rank, e.g. by an alias.
  void replace(const Emu& emu, DeviceId device, UnitState state);
  // All that a device held is gone: it died.
  void drop(DeviceId device);

  // Copies the moves of a plan from complete source units to complete target units; step counter
  // and weight version come along. Source and target dtypes may differ (weights are converted).
  void copy(const ReshardPlan& plan, std::span<const Emu> sources, std::span<const Emu> targets);

  // Writes / reads logical tensors ("model.norm.weight" → global CPU tensor) of one kind of a unit.
  TensorMap gather(const Emu& emu, StateKind kind) const;
  void scatter(const Emu& emu, StateKind kind, const TensorMap& tensors);
  // Zeroes one kind of state, e.g. the moments of a new optimizer.
  void clear(const Emu& emu, StateKind kind);

  // Hash per "kind/tensor" over the logical bytes of a unit, and its step counter: independent of
  // the layout, equal iff bit-equal. Each device hashes what it holds, on its worker in `workers`.
  std::map<std::string, uint64_t> hashes(const Emu& emu, const WorkerPool& workers) const;
  std::map<std::string, uint64_t> hashes(const Emu& emu) const { return hashes(emu, workers_); }

 private:
  const WorkerPool& workers_;
  mutable std::mutex mutex_;  // guards the map, not what it points to
  std::map<std::pair<Emu, DeviceId>, std::unique_ptr<UnitState>> states_;
};

}  // namespace nereus
