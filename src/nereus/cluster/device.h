// Devices and the pool of those that are there now.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "nereus/base/json.h"

namespace nereus {

// One accelerator (or virtual CPU device): host number and index on that host. Text form
// "host:index".
struct DeviceId {
  int host = 0;
  int index = 0;
  auto operator<=>(const DeviceId&) const = default;
};

std::string to_string(DeviceId device);
// Throws Error(kInvalidInput) unless text is "host:index" with non-negative numbers.
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
