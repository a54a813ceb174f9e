#include "nereus/runtime/comm/communicator_cache.h"

#include <algorithm>
#include <set>

#include "nereus/runtime/comm/nccl_communicator.h"

namespace nereus {

namespace {

std::vector<std::unique_ptr<Communicator>> make_group(const std::vector<DeviceId>& members,
                                                      const Backend& backend) {
  std::set<int> gpus;
  std::vector<int> of_members;
  for (const DeviceId member : members) {
    if (backend.is_cpu()) break;
    of_members.push_back(backend.gpu_of(member));
    gpus.insert(of_members.back());
  }
  const bool each_has_its_own = gpus.size() == members.size();
  if (each_has_its_own) return make_nccl_communicators(of_members);
  return make_thread_communicators(static_cast<int>(members.size()));
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> CommunicatorCache::group(
    const std::vector<DeviceId>& members) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Communicator>>& handles = groups_[members];
  if (handles.empty() || handles.front()->is_aborted()) {
    handles.clear();
    for (auto& handle : make_group(members, backend_)) handles.push_back(std::move(handle));
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
