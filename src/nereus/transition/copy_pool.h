// From which replica the next one is copied.
#pragma once

#include <map>
#include <vector>

#include "nereus/cluster/device.h"

namespace nereus {

// Copies that others may be made from, by the host of their first device. They serve in rounds:
// every copy that is there when a round begins serves one new copy in it.
class CopyPool final {
 public:
  void add(int copy, DeviceId first) {
    all_.copies.push_back(copy);
    on_host_[first.host].copies.push_back(copy);
  }
  // The source for a copy whose first device is `first`: one on its host, which no NIC has to
  // carry, else any. Requires that there is one.
  int next(DeviceId first) {
    const auto near = on_host_.find(first.host);
    return near == on_host_.end() ? all_.take() : near->second.take();
  }

 private:
  struct Rounds {
    std::vector<int> copies;
    size_t next = 0;
    size_t end = 0;  // of the round

    int take() {
      if (next == end) {
        next = 0;
        end = copies.size();
      }
      return copies[next++];
    }
  };
  Rounds all_;
  std::map<int, Rounds> on_host_;
};

}  // namespace nereus
