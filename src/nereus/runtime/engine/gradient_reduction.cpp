#include "nereus/runtime/engine/gradient_reduction.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace nereus {

namespace {

// What `second` gets from now on waits for what `first` has got.
void continue_after(c10::Stream first, c10::Stream second) {
  c10::Event event(first.device_type());
  event.record(first);
  event.block(second);
}

}  // namespace

GradientReduction::GradientReduction(std::vector<GradientArena> arenas, Communicator& dp,
                                     StreamTimer& exposed)
    : arenas_(std::move(arenas)), dp_(dp), exposed_(exposed) {
  for (size_t i = arenas_.size(); i-- > 0;) order_.push_back(i);
  std::ranges::stable_partition(order_, [&](size_t i) { return arenas_[i].early; });
  const at::Device device = arenas_.front().sums.device();
  if (device.is_cpu() || dp.size() == 1) return;
  beside_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void GradientReduction::arrived(size_t arena) {
  --arenas_[arena].awaited;
  while (reduced_ < order_.size()) {
    const GradientArena& next = arenas_[order_[reduced_]];
    if (!next.early || next.awaited > 0) return;
    reduce_next();
  }
}

void GradientReduction::finish() {
  while (reduced_ < order_.size()) reduce_next();
  if (!beside_) return;
  const StreamTimer::Scope waiting(exposed_, beside_->device());
  const c10::impl::VirtualGuardImpl device(beside_->device_type());
  continue_after(*beside_, device.getStream(beside_->device()));
}

void GradientReduction::reduce_next() {
  at::Tensor& sums = arenas_[order_[reduced_++]].sums;
  if (!beside_) {
    const StreamTimer::Scope waiting(exposed_, sums.device());
    return dp_.all_reduce(sums);
  }
  const c10::StreamGuard guard(*beside_);
  continue_after(guard.original_stream(), *beside_);
  dp_.all_reduce(sums);
}

}  // namespace nereus
