#include "nereus/planner/placement.h"

#include <algorithm>
#include <map>

#include "nereus/planner/planner.h"

namespace nereus {
namespace {

// The pool's devices host by host, the fullest host first: so every placement, whatever its layout,
// begins with the same device.
std::vector<std::vector<DeviceId>> by_host(const DevicePool& pool) {
  std::map<int, std::vector<DeviceId>> hosts;
  for (DeviceId device : pool.devices()) hosts[device.host].push_back(device);
  std::vector<std::vector<DeviceId>> sorted;
  for (auto& [host, devices] : hosts) sorted.push_back(std::move(devices));
  std::ranges::stable_sort(sorted, std::greater<>(), &std::vector<DeviceId>::size);
  return sorted;
}

}  // namespace

int largest_host(const DevicePool& pool) {
  return pool.empty() ? 0 : static_cast<int>(by_host(pool).front().size());
}

int most_units(Layout layout, const DevicePool& pool) {
  int groups = 0;
  for (const auto& host : by_host(pool)) groups += static_cast<int>(host.size()) / layout.tp;
  return groups / layout.pp;
}

StagePlan place(ModelStage model_stage, Layout layout, int dp, int micro_batch, bool recompute,
                const DevicePool& pool) {
  NEREUS_CHECK(dp >= 1 && dp <= most_units(layout, pool),
               std::to_string(dp) + " units of " + to_string(layout) + " on " +
                   std::to_string(pool.size()) + " devices");
  std::vector<DeviceId> devices;
  for (const auto& host : by_host(pool)) {
    const auto whole_groups = static_cast<std::ptrdiff_t>(host.size()) / layout.tp * layout.tp;
    devices.insert(devices.end(), host.begin(), host.begin() + whole_groups);
  }
  StagePlan stage{.model_stage = model_stage,
                  .layout = layout,
                  .micro_batch = micro_batch,
                  .recompute = recompute};
  for (int unit = 0; unit < dp; ++unit) {
    const auto first = devices.begin() + std::ptrdiff_t{unit} * layout.devices();
    stage.units.emplace_back(first, first + layout.devices());
  }
  return stage;
}

}  // namespace nereus
