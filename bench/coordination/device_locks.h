// Which component owns which device, as a migration without coordination keeps track of it.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nereus/core/cluster/device.h"

namespace nereus::bench {

// Thread-safe; a component is a number and one thread.
class DeviceLocks final {
 public:
  explicit DeviceLocks(std::vector<std::string> components) : names_(std::move(components)) {}

  // Blocks while another component owns the device. Throws Error(kAborted) after abort().
  void acquire(int component, DeviceId device);
  // Of a device that the component owns.
  void release(int component, DeviceId device);

  // Components that wait for each other in a circle now, as sentences; empty if there is none.
  // Nobody in a circle can ever go on: each holds what another one waits for.
  std::vector<std::string> circle() const;
  // Wakes everybody who waits, now and later.
  void abort();

 private:
  std::optional<int> waits_for(int component) const;

  std::vector<std::string> names_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<DeviceId, int> owners_;
  std::map<int, DeviceId> waiting_;  // component → the device it waits for
  bool aborted_ = false;
};

}  // namespace nereus::bench
