#include "nereus/core/transition/transfer_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nereus/core/base/error.h"

namespace nereus {

DeviceNumbers::DeviceNumbers(const Cluster& cluster)
    : hosts_(static_cast<int>(cluster.hosts.size())) {
  for (const HostSpec& host : cluster.hosts) stride_ = std::max(stride_, host.devices + 1);
}

int nic_lanes(const Cluster& cluster, int host) {
  const double lanes = cluster.hosts[host].nic_bandwidth / cluster.between_hosts.bandwidth;
  return std::max(1, static_cast<int>(std::lround(lanes)));
}

TransferMeter::TransferMeter(const Cluster& cluster, const DeviceNumbers& numbers)
    : cluster_(cluster),
      numbers_(numbers),
      loads_(static_cast<size_t>(numbers.count())),
      hosts_(cluster.hosts.size()) {}

TransferMeter::Load& TransferMeter::load(DeviceId device) {
  const int number = numbers_.of(device);
  Load& load = loads_[number];
  if (!load.touched) touched_.push_back(number);
  load.touched = true;
  return load;
}

TransferCost TransferMeter::measure(const Primitive& primitive, std::span<const Emu> units,
                                    StageTables& tables) {
  units_ = units;
  sources_ = primitive.sources;
  replicas_known_ = false;
  if (primitive.targets.empty()) return {};
  const Layout from = units[sources_.front()].layout;
  for (const int source : sources_) {
    NEREUS_CHECK(units[source].layout == from,
                 "sources of " + to_string(primitive, units) + " have several layouts");
    for (int rank = 0; rank < from.devices(); ++rank) {
      load(units[source].devices[rank]).holder = rank;
    }
  }

  TransferCost cost;
  for (const int target : primitive.targets) {
    const Emu& unit = units[target];
    const OverlapTable& table = tables.overlap(from, unit.layout);
    for (int index = 0; index < unit.layout.devices(); ++index) {
      const DeviceId device = unit.devices[index];
      Load& here = load(device);
      const Bytes resident = here.holder < 0 ? Bytes() : table.common(here.holder, index);
      const Bytes missing = table.rank_bytes(index) - resident;
      here.local += Seconds(static_cast<double>(resident.count()) / cluster_.local.bandwidth);
      if (missing > Bytes()) fetch(device, index, here.holder, table, missing);
      cost.resident += resident;
      cost.moved += missing;
    }
  }
  TransferCost links = summary();
  links.moved = cost.moved;
  links.resident = cost.resident;
  for (const int number : touched_) loads_[number] = {};
  for (const int host : touched_hosts_) hosts_[host] = {};
  touched_.clear();
  touched_hosts_.clear();
  return links;
}

void TransferMeter::fetch(DeviceId to, int to_index, int resident, const OverlapTable& table,
                          Bytes missing) {
  const int ranks = units_[sources_.front()].layout.devices();
  int last = resident;
  // Source ranks by what they can give, most first; what two of them hold is taken from one.
  for (int round = 0; round < ranks && missing > Bytes(); ++round) {
    int best = -1;
    Bytes most;
    for (int rank = 0; rank < ranks; ++rank) {
      const Bytes common = table.common(rank, to_index);
      const bool later = last < 0 || last == resident || common < table.common(last, to_index) ||
                         (common == table.common(last, to_index) && rank > last);
      if (rank == resident || !later || common <= most) continue;
      best = rank;
      most = common;
    }
    if (best < 0) break;
    last = best;
    const Bytes taken = std::min(most, missing);
    send(source_of(best, to.host), to, taken);
    missing -= taken;
  }
}

DeviceId TransferMeter::source_of(int rank, int host) {
  if (sources_.size() == 1) return units_[sources_.front()].devices[rank];
  if (!replicas_known_) find_replicas();
  std::span<const DeviceId> choice = replicas_[rank];
  const auto near = std::ranges::equal_range(choice, host, {}, &DeviceId::host);
  if (!near.empty()) choice = {near.begin(), near.end()};
  return choice[turn_[rank]++ % choice.size()];
}

void TransferMeter::find_replicas() {
  const auto ranks = static_cast<size_t>(units_[sources_.front()].layout.devices());
  replicas_.resize(std::max(replicas_.size(), ranks));
  turn_.assign(ranks, 0);
  for (size_t rank = 0; rank < ranks; ++rank) {
    replicas_[rank].clear();
    for (const int source : sources_) replicas_[rank].push_back(units_[source].devices[rank]);
    std::ranges::sort(replicas_[rank]);
  }
  replicas_known_ = true;
}

void TransferMeter::send(DeviceId from, DeviceId to, Bytes bytes) {
  const LinkSpec& path = link(cluster_, from, to);
  const Seconds time = path.latency + Seconds(static_cast<double>(bytes.count()) / path.bandwidth);
  load(from).out += time;
  load(to).in += time;
  if (from.host == to.host) return;
  use_nic(from);
  use_nic(to);
  hosts_[from.host].out += bytes;
  hosts_[to.host].in += bytes;
}

void TransferMeter::use_nic(DeviceId device) {
  Load& here = load(device);
  if (here.uses_nic) return;
  here.uses_nic = true;
  if (hosts_[device.host].devices++ == 0) touched_hosts_.push_back(device.host);
}

TransferCost TransferMeter::summary() {
  TransferCost cost;
  senders_.clear();
  cost.nics.reserve(touched_hosts_.size());
  for (const int number : touched_) {
    const Load& load = loads_[number];
    cost.transfer = std::max(cost.transfer, load.local + std::max(load.out, load.in));
    if (load.out > Seconds()) senders_.push_back(number);
  }
  cost.senders = senders_;
  for (const int host : touched_hosts_) {
    const HostLoad& load = hosts_[host];
    const int all = nic_lanes(cluster_, host);
    const int lanes = std::min(all, load.devices);
    const double bandwidth = cluster_.hosts[host].nic_bandwidth * lanes / all;
    const auto bytes = static_cast<double>(std::max(load.out, load.in).count());
    cost.transfer = std::max(cost.transfer, Seconds(bytes / bandwidth));
    cost.nics.push_back({host, lanes});
  }
  return cost;
}

}  // namespace nereus
