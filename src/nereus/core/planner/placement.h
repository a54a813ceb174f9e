// Where model-stages may be placed: contiguous groups of a pool's devices.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "nereus/core/plan/plan.h"

namespace nereus {

// Which devices a model-stage takes from a position of the line on.
struct Footprint {
  // Rank within its unit by position, the first and the last in use; -1: left out between groups.
  std::vector<int16_t> ranks;
  std::vector<int> by_host;  // how many it takes of each host that it touches, in their order

  bool operator==(const Footprint&) const = default;
};

// The pool's devices host by host, the fullest host first: so what is placed at the front begins
// with the same device, whatever its layout.
class DeviceLine {
 public:
  explicit DeviceLine(const DevicePool& pool);

  const std::vector<DeviceId>& devices() const { return devices_; }
  int size() const { return static_cast<int>(devices_.size()); }
  int largest_host() const;
  // The size of the hosts at the front of the line that are equally large, and equal in `cluster`;
  // and the position at which the last of them ends.
  struct Regular {
    int host = 0;
    int end = 0;
  };
  Regular regular(const Cluster& cluster) const;
  // Every `step` devices from the beginning of each host.
  std::vector<int> positions(int step) const;
  int position_in_host(int position) const;
  // How many units of a layout the pool holds; pipeline stages may span hosts.
  int most_units(Layout layout) const;
  // Units one after the other from the device at `begin` on. Groups of tp devices stay within a
  // host, so the last devices of a host may be left out. Nothing where no group can begin with that
  // very device, or where so many do not follow it.
  std::optional<Footprint> footprint(Layout layout, int units, int begin) const;
  // The same with its devices, or throws Error(kInternal).
  StagePlan place(ModelStage model_stage, Layout layout, int units, int begin) const;

 private:
  // Calls visit(position) for the devices that `groups` groups take; false if they are too few.
  bool for_each_taken(int tp, int groups, int begin, const auto& visit) const;

  std::vector<DeviceId> devices_;
  std::vector<int> host_begins_;  // and the end of the last
};

int most_units(Layout layout, const DevicePool& pool);

}  // namespace nereus
