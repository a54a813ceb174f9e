// Sums gradients over replicas while backward still produces others.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "nereus/runtime/comm/communicator.h"

namespace nereus {

struct GradientArena {
  at::Tensor sums;
  bool early = true;    // complete as soon as the awaited gradients are there; or only at finish()
  int64_t awaited = 0;  // gradients that backward will still add
};

// Used by one thread at a time. Arenas are reduced in one order, the same on all replicas whatever
// their micro-batches: the early ones as backward completes them, from the last to the first, then
// the others. On an accelerator that happens on a stream beside the one that computes.
class GradientReduction final {
 public:
  // The communicator and the timer must outlive it, as must the arenas' memory what has been
  // enqueued. `exposed` gets what the calling thread, or its stream, waits for the reduction.
  GradientReduction(std::vector<GradientArena> arenas, Communicator& dp, StreamTimer& exposed);

  // A gradient has been added to an arena, by what the current stream has got.
  void arrived(size_t arena);
  // Reduces what is left; what the current stream gets afterwards sees all sums.
  void finish();

 private:
  void reduce_next();

  std::vector<GradientArena> arenas_;
  std::vector<size_t> order_;
  size_t reduced_ = 0;  // of order_
  Communicator& dp_;
  StreamTimer& exposed_;
  std::optional<c10::Stream> beside_;  // on accelerators
};

}  // namespace nereus
