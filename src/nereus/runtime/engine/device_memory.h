// The memory of one device: what tensors take of it, and how much they may.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "nereus/core/base/units.h"

namespace nereus {

// A handle: copies share one account. Thread-safe. Tensors keep the account alive that they were
// charged to.
class DeviceMemory final {
 public:
  // Of a virtual CPU device, or of host memory; `name` appears in errors; budget 0: unlimited.
  DeviceMemory(std::string name, Bytes budget);
  // Of an accelerator that this process has to itself: its caching allocator keeps the account, and
  // throws c10::OutOfMemoryError beyond the budget. Of `sharing` devices on one accelerator each
  // reports an equal part of what they use together.
  DeviceMemory(std::string name, Bytes budget, c10::Device accelerator, int sharing = 1);

  Bytes budget() const;
  Bytes current() const;
  // Highest current() since the last reset_peak().
  Bytes peak() const;
  void reset_peak();
  // Makes ready what the calling thread will soon allocate piece by piece, where that is faster.
  void reserve(Bytes bytes) const;

  // While it lives, CPU tensors allocated by the calling thread are charged to the device. An
  // allocation beyond the budget throws Error(kOutOfMemory) naming device, request and budget. Does
  // nothing for an accelerator.
  class Scope final {
   public:
    explicit Scope(const DeviceMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  struct Account;

 private:
  std::shared_ptr<Account> account_;
  std::optional<c10::Device> accelerator_;
  int sharing_ = 1;
};

}  // namespace nereus
