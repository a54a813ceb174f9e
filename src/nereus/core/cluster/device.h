// Devices and the pool of those that are there now.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"

namespace nereus {

// The index that stands for the memory of a host, where state can wait.
inline constexpr int kHostMemory = -1;

// One accelerator (or virtual CPU device): host number and index on that host, text form "0:3"; or
// the memory of a host, {0, kHostMemory}, "0:host".
struct DeviceId {
  int host = 0;
  int index = 0;
  auto operator<=>(const DeviceId&) const = default;
};

bool is_host_memory(DeviceId device);
std::string to_string(DeviceId device);
// Throws Error(kInvalidInput) unless text is a non-negative number, ":" and another or "host".
DeviceId parse_device(const std::string& text);
void to_json(Json& j, const DeviceId& device);
void from_json(const Json& j, DeviceId& device);

// The devices available now: sorted, without repetition.
class DevicePool {
 public:
  DevicePool() = default;
  explicit DevicePool(std::vector<DeviceId> devices);

  const std::vector<DeviceId>& devices() const { return devices_; }
  int size() const { return static_cast<int>(devices_.size()); }
  bool empty() const { return devices_.empty(); }
  bool contains(DeviceId device) const;
  bool operator==(const DevicePool&) const = default;

 private:
  std::vector<DeviceId> devices_;
};

void to_json(Json& j, const DevicePool& pool);
void from_json(const Json& j, DevicePool& pool);

}  // namespace nereus
