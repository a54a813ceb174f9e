#include "nereus/core/planner/placement.h"

#include <algorithm>

#include "nereus/core/planner/planner.h"

namespace nereus {

DeviceLine::DeviceLine(const DevicePool& pool) {
  std::map<int, std::vector<DeviceId>> by_host;
  for (DeviceId device : pool.devices()) by_host[device.host].push_back(device);
  std::vector<std::vector<DeviceId>> hosts;
  for (auto& [host, devices] : by_host) hosts.push_back(std::move(devices));
  std::ranges::stable_sort(hosts, std::greater<>(), &std::vector<DeviceId>::size);
  host_begins_.push_back(0);
  for (const std::vector<DeviceId>& host : hosts) {
    devices_.insert(devices_.end(), host.begin(), host.end());
    host_begins_.push_back(size());
  }
}

int DeviceLine::largest_host() const { return devices_.empty() ? 0 : host_begins_[1]; }

DeviceLine::Regular DeviceLine::regular(const Cluster& cluster) const {
  if (devices_.empty()) return {};
  const auto host_at = [&](int position) -> const HostSpec& {
    return cluster.hosts.at(size_t(devices_[size_t(position)].host));
  };
  Regular regular{.host = largest_host(), .end = largest_host()};
  for (size_t host = 1; host + 1 < host_begins_.size(); ++host) {
    if (host_begins_[host + 1] - host_begins_[host] != regular.host) break;
    if (host_at(host_begins_[host]) != host_at(0)) break;
    regular.end = host_begins_[host + 1];
  }
  return regular;
}

std::vector<int> DeviceLine::positions(int step) const {
  std::vector<int> positions;
  for (size_t host = 0; host + 1 < host_begins_.size(); ++host) {
    for (int at = host_begins_[host]; at < host_begins_[host + 1]; at += step) {
      positions.push_back(at);
    }
  }
  return positions;
}

int DeviceLine::position_in_host(int position) const {
  return position - *std::prev(std::ranges::upper_bound(host_begins_, position));
}

int DeviceLine::most_units(Layout layout) const {
  int groups = 0;
  for (size_t host = 0; host + 1 < host_begins_.size(); ++host) {
    groups += (host_begins_[host + 1] - host_begins_[host]) / layout.tp;
  }
  return groups / (layout.pp * layout.zero);
}

bool DeviceLine::for_each_taken(int tp, int groups, int begin, const auto& visit) const {
  auto end_of_host = std::ranges::upper_bound(host_begins_, begin);
  for (int at = begin; groups > 0 && end_of_host != host_begins_.end(); ++end_of_host) {
    for (; groups > 0 && at + tp <= *end_of_host; --groups) {
      for (int i = 0; i < tp; ++i) visit(at++);
    }
    at = *end_of_host;
  }
  return groups == 0;
}

std::optional<Footprint> DeviceLine::footprint(Layout layout, int units, int begin) const {
  Footprint footprint;
  int taken = 0, end_of_host = 0;
  const auto visit = [&](int position) {
    if (taken == 0 && position != begin) return;
    if (position >= end_of_host) {
      end_of_host = *std::ranges::upper_bound(host_begins_, position);
      footprint.by_host.push_back(0);
    }
    ++footprint.by_host.back();
    footprint.ranks.resize(size_t(position - begin), -1);
    footprint.ranks.push_back(static_cast<int16_t>(taken++ % layout.devices()));
  };
  if (begin < 0 || begin >= size()) return std::nullopt;
  if (!for_each_taken(layout.tp, units * layout.pp * layout.zero, begin, visit)) return {};
  if (taken == 0) return std::nullopt;
  return footprint;
}

StagePlan DeviceLine::place(ModelStage model_stage, Layout layout, int units, int begin) const {
  StagePlan stage{.model_stage = model_stage, .layout = layout};
  std::vector<DeviceId> taken;
  const bool enough =
      for_each_taken(layout.tp, units * layout.pp * layout.zero, begin,
                     [&](int position) { taken.push_back(devices_[size_t(position)]); });
  NEREUS_CHECK(units >= 1 && enough, std::to_string(units) + " units of " + to_string(layout) +
                                         " on " + std::to_string(size()) + " devices from " +
                                         std::to_string(begin));
  for (auto next = taken.begin(); next != taken.end(); next += layout.devices()) {
    stage.units.emplace_back(next, next + layout.devices());
  }
  return stage;
}

int most_units(Layout layout, const DevicePool& pool) {
  return DeviceLine(pool).most_units(layout);
}

StagePlan place(ModelStage model_stage, Layout layout, int dp, int micro_batch, bool recompute,
                const DevicePool& pool) {
  StagePlan stage = DeviceLine(pool).place(model_stage, layout, dp, 0);
  stage.micro_batch = micro_batch;
  stage.recompute = recompute;
  return stage;
}

}  // namespace nereus
