#include "nereus/core/cost/site.h"

#include <algorithm>

namespace nereus {
namespace {

// All units of a pass run at once: how many devices of each host do.
std::vector<int> active_devices(const StagePlan& stage, const Cluster& cluster) {
  std::vector<int> active(cluster.hosts.size());
  for (const std::vector<DeviceId>& unit : stage.units) {
    for (DeviceId device : unit) ++active.at(size_t(device.host));
  }
  return active;
}

// By host: the first one that is like it and has as many active devices.
std::vector<int> first_alike(const Cluster& cluster, const std::vector<int>& active) {
  std::vector<int> first;
  std::vector<int> kinds;
  for (size_t host = 0; host < active.size(); ++host) {
    const auto kind = std::ranges::find_if(kinds, [&](int other) {
      return active[size_t(other)] == active[host] &&
             cluster.hosts[size_t(other)] == cluster.hosts[host];
    });
    first.push_back(kind == kinds.end() ? int(host) : *kind);
    if (kind == kinds.end()) kinds.push_back(first.back());
  }
  return first;
}

// What a unit's speed depends on: which of its devices share a host, and what the hosts are like.
using Spread = std::vector<std::pair<size_t, int>>;

Spread spread_of(const std::vector<DeviceId>& unit, const std::vector<int>& alike) {
  Spread spread;
  for (DeviceId device : unit) {
    const auto same_host = [&](DeviceId other) { return other.host == device.host; };
    const auto mate = std::ranges::find_if(unit, same_host);
    spread.emplace_back(mate - unit.begin(), alike[size_t(device.host)]);
  }
  return spread;
}

std::vector<Site::Unit> distinct_units(const StagePlan& stage, const Cluster& cluster) {
  const std::vector<int> active = active_devices(stage, cluster);
  const std::vector<int> alike = first_alike(cluster, active);
  std::vector<Spread> known;
  std::vector<Site::Unit> units;
  for (const std::vector<DeviceId>& devices : stage.units) {
    Spread spread = spread_of(devices, alike);
    if (std::ranges::find(known, spread) != known.end()) continue;
    known.push_back(std::move(spread));
    Site::Unit unit{devices};
    for (DeviceId device : devices) {
      const auto host = size_t(device.host);
      unit.share = std::min(unit.share, speed_share(cluster.hosts[host], active[host]));
    }
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<LinkUse> gradient_links(const StagePlan& stage, const Cluster& cluster) {
  const int places = stage.layout.tp * stage.layout.pp;
  std::vector<HostCounts> rings;
  for (int place = 0; place < places; ++place) {
    std::vector<DeviceId> ring;
    for (const std::vector<DeviceId>& unit : stage.units) {
      for (auto i = size_t(place); i < unit.size(); i += size_t(places)) ring.push_back(unit[i]);
    }
    rings.push_back(count_by_host(ring));
  }
  // The most rings that leave one host, through its network, at once.
  std::vector<int> leaving(cluster.hosts.size());
  int most = 1;
  for (const HostCounts& ring : rings) {
    if (ring.size() < 2) continue;
    for (const auto& [host, count] : ring) most = std::max(most, ++leaving[size_t(host)]);
  }
  std::vector<LinkUse> links;
  for (const HostCounts& ring : rings) links.push_back(ring_link(cluster, ring, most));
  return links;
}

}  // namespace

StateElements state_elements(const ModelSpec& spec, Layout layout) {
  return {part_elements(spec, layout, StatePart::kWeights),
          part_elements(spec, layout, StatePart::kOptimizer)};
}

StateWidths state_widths(DType weights, Stage stage) {
  const int64_t size = size_of(weights).count();
  if (stage != Stage::kTraining) return {size};
  return {size, size < 4 ? 4 : 0, 2 * std::max<int64_t>(4, size)};
}

Site site_of(const StagePlan& stage, StateElements elements, const Cluster& cluster) {
  return {distinct_units(stage, cluster), gradient_links(stage, cluster), std::move(elements)};
}

Site site_of(const StagePlan& stage, const JobSpec& job, const Cluster& cluster) {
  return site_of(stage, state_elements(job.model(stage.model_stage.role), stage.layout), cluster);
}

}  // namespace nereus
