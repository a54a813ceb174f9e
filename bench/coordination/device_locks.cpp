#include "coordination/device_locks.h"

#include "nereus/core/base/error.h"

namespace nereus::bench {

void DeviceLocks::acquire(int component, DeviceId device) {
  std::unique_lock lock(mutex_);
  waiting_.emplace(component, device);
  changed_.wait(lock, [&] {
    const auto owner = owners_.find(device);
    return aborted_ || owner == owners_.end() || owner->second == component;
  });
  waiting_.erase(component);
  if (aborted_) throw Error(ErrorCode::kAborted, names_.at(component) + " stops waiting");
  owners_.emplace(device, component);
}

void DeviceLocks::release(int component, DeviceId device) {
  {
    const std::lock_guard lock(mutex_);
    NEREUS_CHECK(owners_.contains(device) && owners_.at(device) == component,
                 names_.at(component) + " does not own " + to_string(device));
    owners_.erase(device);
  }
  changed_.notify_all();
}

std::optional<int> DeviceLocks::waits_for(int component) const {
  const auto device = waiting_.find(component);
  if (device == waiting_.end()) return std::nullopt;
  const auto owner = owners_.find(device->second);
  if (owner == owners_.end() || owner->second == component) return std::nullopt;
  return owner->second;
}

std::vector<std::string> DeviceLocks::circle() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [first, unused] : waiting_) {
    std::vector<std::string> sentences;
    int component = first;
    while (sentences.size() < waiting_.size()) {
      const std::optional<int> owner = waits_for(component);
      if (!owner) break;
      sentences.push_back(names_.at(component) + " waits for " + to_string(waiting_.at(component)) +
                          " of " + names_.at(*owner));
      component = *owner;
      if (component == first) return sentences;
    }
  }
  return {};
}

void DeviceLocks::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
}

}  // namespace nereus::bench
