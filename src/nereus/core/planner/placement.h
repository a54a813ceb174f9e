// Where model-stages may be placed: contiguous blocks from the front or from the back of a pool.
#pragma once

#include <map>
#include <vector>

#include "nereus/core/plan/plan.h"

namespace nereus {

enum class Side { kFront, kBack };

// The pool's devices host by host, the fullest host first: so what is placed at the front begins
// with the same device, whatever its layout. The back is the mirror image of the front.
class DeviceLine {
 public:
  explicit DeviceLine(const DevicePool& pool);

  const std::vector<DeviceId>& devices() const { return devices_; }
  int size() const { return static_cast<int>(devices_.size()); }
  int largest_host() const;
  // All hosts have equally many devices.
  bool is_regular() const;
  // Units of so many devices cut all hosts alike: the back looks like the front to them.
  bool is_symmetric(int unit) const;
  // Positions on the line in the order in which groups of `tp` devices take them: groups stay
  // within a host, so the last devices of a host may be left out.
  std::vector<int> positions(int tp, Side side) const;
  // How many units of a layout the pool holds; pipeline stages may span hosts.
  int most_units(Layout layout) const;
  // `dp` units, or throws Error(kInternal).
  StagePlan place(ModelStage model_stage, Layout layout, int dp, Side side) const;
  // The rank within its unit of the device at each position; -1 where there is none.
  std::vector<int16_t> ranks(Layout layout, int dp, Side side) const;

 private:
  std::vector<DeviceId> devices_;
  std::vector<int> host_sizes_;
};

int most_units(Layout layout, const DevicePool& pool);

}  // namespace nereus
