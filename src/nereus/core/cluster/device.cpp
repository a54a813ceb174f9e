#include "nereus/core/cluster/device.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "nereus/core/base/text.h"

namespace nereus {

namespace {

constexpr std::string_view kHostMemoryWord = "host";

}  // namespace

bool is_host_memory(DeviceId device) { return device.index == kHostMemory; }

std::string to_string(DeviceId device) {
  const std::string place =
      is_host_memory(device) ? std::string(kHostMemoryWord) : std::to_string(device.index);
  return std::to_string(device.host) + ":" + place;
}

DeviceId parse_device(const std::string& text) {
  DeviceId device;
  const char* end = text.data() + text.size();
  const auto host = std::from_chars(text.data(), end, device.host);
  if (host.ec == std::errc() && host.ptr != end && *host.ptr == ':') {
    if (device.host >= 0 && std::string_view(host.ptr + 1, end) == kHostMemoryWord) {
      return {device.host, kHostMemory};
    }
    const auto index = std::from_chars(host.ptr + 1, end, device.index);
    const bool complete = index.ec == std::errc() && index.ptr == end;
    if (complete && device.host >= 0 && device.index >= 0) return device;
  }
  throw Error(ErrorCode::kInvalidInput,
              shown(text) + " is not a device; write host:index, for example 0:3, or 0:host");
}

void to_json(Json& j, const DeviceId& device) { j = to_string(device); }

void from_json(const Json& j, DeviceId& device) {
  device = parse_device(j.is_string() ? j.get<std::string>() : j.dump());
}

DevicePool::DevicePool(std::vector<DeviceId> devices) : devices_(std::move(devices)) {
  std::sort(devices_.begin(), devices_.end());
  devices_.erase(std::unique(devices_.begin(), devices_.end()), devices_.end());
}

bool DevicePool::contains(DeviceId device) const {
  return std::binary_search(devices_.begin(), devices_.end(), device);
}

void to_json(Json& j, const DevicePool& pool) { j = pool.devices(); }

void from_json(const Json& j, DevicePool& pool) { pool = DevicePool(as<std::vector<DeviceId>>(j)); }

}  // namespace nereus
