// Moving state between units.
#pragma once

#include "nereus/core/state/reshard.h"
#include "nereus/runtime/cuda/state_ops.h"
#include "nereus/runtime/engine/unit_state.h"

namespace nereus {

// Used by the worker of the device that receives.
class StateCopier final {
 public:
  // Copies the move's box of one tensor, in every component of its part that the target has; dtypes
  // may differ. At once, or when enqueue() is called: then what lies side by side is one copy.
  void add(const UnitState& source, const UnitState& target, const Move& move);
  // Hands what was added to the device.
  void enqueue() { copies_.enqueue(); }
  // When the worker's stream is done, so are all copies.
  void join() { copies_.join(); }

 private:
  cuda::Copies copies_;
};

}  // namespace nereus
