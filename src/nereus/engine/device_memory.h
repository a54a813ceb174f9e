// The memory of one virtual CPU device: a budget that every tensor allocation is charged against.
#pragma once

#include <memory>
#include <string>

#include "nereus/base/units.h"

namespace nereus {

// A handle: copies share one account. Thread-safe. Tensors keep the account alive that they were
// charged to.
class DeviceMemory final {
 public:
  // `name` appears in errors; budget 0: unlimited.
  DeviceMemory(std::string name, Bytes budget);

  Bytes budget() const;
  Bytes current() const;
  // Highest current() since the last reset_peak().
  Bytes peak() const;
  void reset_peak();

  // While it lives, CPU tensors allocated by the calling thread are charged to the device. An
  // allocation beyond the budget throws Error(kOutOfMemory) naming device, request and budget.
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
};

}  // namespace nereus
