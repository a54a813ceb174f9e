#include "nereus/core/planner/placement.h"

#include <algorithm>
#include <numeric>

#include "nereus/core/planner/planner.h"

namespace nereus {

DeviceLine::DeviceLine(const DevicePool& pool) {
  std::map<int, std::vector<DeviceId>> by_host;
  for (DeviceId device : pool.devices()) by_host[device.host].push_back(device);
  std::vector<std::vector<DeviceId>> hosts;
  for (auto& [host, devices] : by_host) hosts.push_back(std::move(devices));
  std::ranges::stable_sort(hosts, std::greater<>(), &std::vector<DeviceId>::size);
  for (const std::vector<DeviceId>& host : hosts) {
    host_sizes_.push_back(static_cast<int>(host.size()));
    devices_.insert(devices_.end(), host.begin(), host.end());
  }
}

int DeviceLine::largest_host() const { return host_sizes_.empty() ? 0 : host_sizes_.front(); }

bool DeviceLine::is_regular() const {
  return !host_sizes_.empty() && host_sizes_.front() == host_sizes_.back();
}

bool DeviceLine::is_symmetric(int unit) const {
  const int host = largest_host();
  return is_regular() && (host % unit == 0 || unit % host == 0);
}

std::vector<int> DeviceLine::positions(int tp, Side side) const {
  std::vector<int> positions;
  int begin = 0;
  for (int size : host_sizes_) {
    const int spare = size % tp;
    const int first = side == Side::kFront ? begin : begin + spare;
    for (int i = 0; i < size - spare; ++i) positions.push_back(first + i);
    begin += size;
  }
  if (side == Side::kBack) std::ranges::reverse(positions);
  return positions;
}

int DeviceLine::most_units(Layout layout) const {
  const int groups = std::accumulate(host_sizes_.begin(), host_sizes_.end(), 0,
                                     [&](int sum, int size) { return sum + size / layout.tp; });
  return groups / (layout.pp * layout.zero);
}

StagePlan DeviceLine::place(ModelStage model_stage, Layout layout, int dp, Side side) const {
  NEREUS_CHECK(dp >= 1 && dp <= most_units(layout), std::to_string(dp) + " units of " +
                                                        to_string(layout) + " on " +
                                                        std::to_string(size()) + " devices");
  const std::vector<int> taken = positions(layout.tp, side);
  StagePlan stage{.model_stage = model_stage, .layout = layout};
  auto next = taken.begin();
  for (int unit = 0; unit < dp; ++unit) {
    std::vector<DeviceId>& devices = stage.units.emplace_back();
    devices.reserve(layout.devices());
    for (int index = 0; index < layout.devices(); ++index) devices.push_back(devices_[*next++]);
    if (side == Side::kBack) std::ranges::reverse(devices);
  }
  return stage;
}

std::vector<int16_t> DeviceLine::ranks(Layout layout, int dp, Side side) const {
  const std::vector<int> taken = positions(layout.tp, side);
  std::vector<int16_t> ranks(devices_.size(), -1);
  const int unit = layout.devices();
  for (int i = 0; i < dp * unit; ++i) {
    ranks[taken[i]] = static_cast<int16_t>(side == Side::kFront ? i % unit : unit - 1 - i % unit);
  }
  return ranks;
}

int most_units(Layout layout, const DevicePool& pool) {
  return DeviceLine(pool).most_units(layout);
}

StagePlan place(ModelStage model_stage, Layout layout, int dp, int micro_batch, bool recompute,
                const DevicePool& pool) {
  StagePlan stage = DeviceLine(pool).place(model_stage, layout, dp, Side::kFront);
  stage.micro_batch = micro_batch;
  stage.recompute = recompute;
  return stage;
}

}  // namespace nereus
