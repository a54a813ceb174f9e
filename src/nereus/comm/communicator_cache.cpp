#include "nereus/comm/communicator_cache.h"

#include <algorithm>

#include "nereus/comm/nccl_communicator.h"

namespace nereus {

namespace {

std::vector<std::unique_ptr<Communicator>> make_group(const std::vector<DeviceId>& members,
                                                      const std::string& device_type) {
  if (device_type != "cuda") return make_thread_communicators(static_cast<int>(members.size()));
  std::vector<int> devices;
  devices.reserve(members.size());
  for (const DeviceId member : members) devices.push_back(member.index);
  return make_nccl_communicators(devices);
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> CommunicatorCache::group(
    const std::vector<DeviceId>& members) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Communicator>>& handles = groups_[members];
  if (handles.empty() || handles.front()->is_aborted()) {
    handles.clear();
    for (auto& handle : make_group(members, device_type_)) handles.push_back(std::move(handle));
  }
  return handles;
}

void CommunicatorCache::trim() {
  std::vector<std::vector<std::shared_ptr<Communicator>>> unused;  // given up without the lock
  const std::lock_guard lock(mutex_);
  for (auto entry = groups_.begin(); entry != groups_.end();) {
    const bool is_used = std::ranges::any_of(
        entry->second, [](const auto& handle) { return handle.use_count() > 1; });
    if (is_used) {
      ++entry;
    } else {
      unused.push_back(std::move(entry->second));
      entry = groups_.erase(entry);
    }
  }
}

}  // namespace nereus
