// Groups of communicators, kept as long as somebody may need them again: making one takes 40 ms
// with NCCL, the first one half a second, and so does giving one up.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "nereus/cluster/cluster.h"
#include "nereus/comm/communicator.h"

namespace nereus {

// Thread-safe.
class CommunicatorCache final {
 public:
  // `device_type` "cpu": threads' communicators; "cuda": NCCL's, device i of the host being cuda:i.
  explicit CommunicatorCache(std::string device_type) : device_type_(std::move(device_type)) {}

  // One handle per member, in their order: those that were given out before for these members, or
  // new ones if there are none or somebody has aborted them. Whoever shares a handle uses it on one
  // thread at a time.
  std::vector<std::shared_ptr<Communicator>> group(const std::vector<DeviceId>& members);

  // Gives up the groups of which nobody else has a handle.
  void trim();

 private:
  std::string device_type_;
  std::mutex mutex_;
  std::map<std::vector<DeviceId>, std::vector<std::shared_ptr<Communicator>>> groups_;
};

}  // namespace nereus
