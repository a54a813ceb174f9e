// From which replica the next one is copied.
#pragma once

#include <cstddef>
#include <vector>

#include "nereus/core/cluster/device.h"

namespace nereus {

// Copies that others may be made from, by the host of their first device. Hosts take turns, and on
// a host the copies serve in rounds: all that are there when a round begins serve once in it.
class CopyPool final {
 public:
  void add(int copy, DeviceId first) {
    const auto host = static_cast<size_t>(first.host);
    if (host >= on_host_.size()) on_host_.resize(host + 1);
    std::vector<int>& there = on_host_[host].members;
    if (there.empty()) hosts_.members.push_back(first.host);
    there.push_back(copy);
  }
  // The source for a copy whose first device is `first`: one on its host, which no NIC has to
  // carry, else one on the next host. Requires that there is one.
  int next(DeviceId first) {
    const auto host = static_cast<size_t>(first.host);
    const bool near = host < on_host_.size() && !on_host_[host].members.empty();
    return on_host_[near ? host : static_cast<size_t>(hosts_.take())].take();
  }

 private:
  struct Rounds {
    std::vector<int> members;
    size_t next = 0;
    size_t end = 0;  // of the round

    int take() {
      if (next == end) {
        next = 0;
        end = members.size();
      }
      return members[next++];
    }
  };
  Rounds hosts_;
  std::vector<Rounds> on_host_;  // copies
};

}  // namespace nereus
