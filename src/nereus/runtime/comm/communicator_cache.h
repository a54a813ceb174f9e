// Groups of communicators, kept as long as somebody may need them again: making one takes 40 ms
// with NCCL, the first one half a second, and so does giving one up.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "nereus/core/cluster/backend.h"
#include "nereus/runtime/comm/communicator.h"

namespace nereus {

// Thread-safe.
class CommunicatorCache final {
 public:
  // On GPUs of their own the members of a group have NCCL's communicators, else threads'.
  explicit CommunicatorCache(Backend backend) : backend_(std::move(backend)) {}

  // One handle per member, in their order: those that were given out before for these members, or
  // new ones if there are none or somebody has aborted them. Whoever shares a handle uses it on one
  // thread at a time.
  std::vector<std::shared_ptr<Communicator>> group(const std::vector<DeviceId>& members);

  // Gives up the groups of which nobody else has a handle.
  void trim();

 private:
  Backend backend_;
  std::mutex mutex_;
  std::map<std::vector<DeviceId>, std::vector<std::shared_ptr<Communicator>>> groups_;
};

}  // namespace nereus
