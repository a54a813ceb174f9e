// Being told to stop, as a value that long work carries along and looks at.
#pragma once

#include <atomic>

#include "nereus/core/base/error.h"

namespace nereus {

// What work throws that was told to stop: no fault.
class Stopped final : public Error {
 public:
  Stopped() : Error(ErrorCode::kAborted, "the job was told to stop") {}
};

// A view of somebody's flag, or of none: then nobody ever asks. Cheap to copy and to look at; any
// thread. The flag must outlive every copy.
class StopToken final {
 public:
  StopToken() = default;
  explicit StopToken(const std::atomic<bool>& flag) : flag_(&flag) {}

  bool requested() const { return flag_ != nullptr && flag_->load(std::memory_order_relaxed); }
  // Throws Stopped if it is. For places where leaving changes nothing that lasts.
  void check() const {
    if (requested()) throw Stopped();
  }

 private:
  const std::atomic<bool>* flag_ = nullptr;
};

}  // namespace nereus
