#include "nereus/core/cost/weight_sync.h"

#include <algorithm>

#include "nereus/core/cost/collectives.h"

namespace nereus {
namespace {

// Dense numbers for the devices of a cluster.
class Numbers {
 public:
  explicit Numbers(const Cluster& cluster) : hosts_(cluster.hosts.size()) {
    for (const HostSpec& host : cluster.hosts) stride_ = std::max(stride_, size_t(host.devices));
  }
  size_t of(DeviceId device) const { return size_t(device.host) * stride_ + device.index; }
  size_t count() const { return hosts_ * stride_; }

 private:
  size_t hosts_;
  size_t stride_ = 1;  // devices of the largest host
};

// The devices that hold each rank of actor training, by host.
class Replicas {
 public:
  Replicas(const StagePlan& training, size_t hosts)
      : hosts_(hosts),
        first_(size_t(training.layout.devices()) * hosts + 1),
        turns_(size_t(training.layout.devices())) {
    const auto each = [&](auto&& visit) {
      for (const std::vector<DeviceId>& unit : training.units) {
        for (size_t rank = 0; rank < unit.size(); ++rank) {
          visit(place(rank, unit[rank].host), unit[rank]);
        }
      }
    };
    each([&](size_t place, DeviceId) { ++first_[place + 1]; });
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    std::vector<size_t> next = first_;
    held_.resize(first_.back());
    each([&](size_t place, DeviceId device) { held_[next[place]++] = device; });
  }

  // Whose turn it is to send a rank to a device of `host`.
  DeviceId sender(size_t rank, int host) {
    size_t begin = first_[place(rank, host)], end = first_[place(rank, host) + 1];
    if (begin == end) {
      begin = first_[place(rank, 0)];
      end = first_[place(rank + 1, 0)];
    }
    return held_[begin + turns_[rank]++ % (end - begin)];
  }

 private:
  size_t place(size_t rank, int host) const { return rank * hosts_ + size_t(host); }

  size_t hosts_;
  std::vector<size_t> first_;  // by rank and host: index into held_; and the end
  std::vector<DeviceId> held_;
  std::vector<uint32_t> turns_;
};

// What training ranks hold of each generation rank, those that hold most first.
std::vector<std::vector<int>> sources(const OverlapTable& table, int from_ranks, int to_ranks) {
  std::vector<std::vector<int>> all;
  for (int to = 0; to < to_ranks; ++to) {
    std::vector<int>& own = all.emplace_back();
    for (int from = 0; from < from_ranks; ++from) {
      if (table.common(from, to) > Bytes()) own.push_back(from);
    }
    std::ranges::stable_sort(own, std::greater<>(),
                             [&](int from) { return table.common(from, to); });
  }
  return all;
}

// Bytes that a device or a host sends or receives.
struct Load {
  Bytes near;
  Bytes far;
};

// Loads by device, and by host of what crosses its network.
class Loads {
 public:
  Loads(const Cluster& cluster, const Numbers& numbers)
      : cluster_(cluster),
        numbers_(numbers),
        devices_(numbers.count()),
        hosts_(cluster.hosts.size()) {}

  void send(DeviceId from, DeviceId to, Bytes bytes) {
    const bool near = from.host == to.host;
    Bytes Load::* const way = near ? &Load::near : &Load::far;
    devices_[numbers_.of(from)].out.*way += bytes;
    devices_[numbers_.of(to)].in.*way += bytes;
    if (near) return;
    hosts_[size_t(from.host)].out.far += bytes;
    hosts_[size_t(to.host)].in.far += bytes;
  }

  Operations slowest() const {
    Slowest slowest;
    for (const Ways& device : devices_) consider(slowest, device, cluster_.between_hosts.bandwidth);
    for (size_t host = 0; host < hosts_.size(); ++host) {
      const double nic = cluster_.hosts[host].nic_bandwidth;
      if (nic > 0) consider(slowest, hosts_[host], nic);
    }
    Operations work;
    const auto [seconds, load, far_bandwidth] = slowest;
    if (load.near > Bytes()) work += nereus::send(double(load.near.count()), {cluster_.in_host});
    if (load.far > Bytes()) {
      LinkUse link{cluster_.between_hosts, true};
      link.spec.bandwidth = far_bandwidth;
      work += nereus::send(double(load.far.count()), link);
    }
    return work;
  }

 private:
  struct Ways {
    Load in;
    Load out;
  };
  struct Slowest {
    double seconds = 0;
    Load load;
    double far_bandwidth = 1;
  };

  void consider(Slowest& slowest, const Ways& ways, double far_bandwidth) const {
    for (const Load& load : {ways.in, ways.out}) {
      const double seconds = double(load.near.count()) / cluster_.in_host.bandwidth +
                             double(load.far.count()) / far_bandwidth;
      if (seconds > slowest.seconds) slowest = {seconds, load, far_bandwidth};
    }
  }

  const Cluster& cluster_;
  const Numbers& numbers_;
  std::vector<Ways> devices_;
  std::vector<Ways> hosts_;
};

// By device: the rank of actor training on it; -1: none.
std::vector<int> training_ranks(const StagePlan& training, const Numbers& numbers) {
  std::vector<int> ranks(numbers.count(), -1);
  for (const std::vector<DeviceId>& unit : training.units) {
    for (size_t rank = 0; rank < unit.size(); ++rank) ranks[numbers.of(unit[rank])] = int(rank);
  }
  return ranks;
}

}  // namespace

Work sync_work(const StagePlan& training, const StagePlan& generation, const SchemaSummary& weights,
               const Cluster& cluster) {
  const int from_ranks = training.layout.devices(), to_ranks = generation.layout.devices();
  const OverlapTable table(weights, training.layout, generation.layout);
  const std::vector<std::vector<int>> givers = sources(table, from_ranks, to_ranks);
  const Numbers numbers(cluster);
  const std::vector<int> held = training_ranks(training, numbers);
  Replicas replicas(training, cluster.hosts.size());
  Loads loads(cluster, numbers);
  for (const std::vector<DeviceId>& unit : generation.units) {
    for (int rank = 0; rank < to_ranks; ++rank) {
      const DeviceId device = unit[size_t(rank)];
      const int own = held[numbers.of(device)];
      Bytes missing = table.rank_bytes(rank);
      if (own >= 0) missing -= table.common(own, rank);
      for (const int giver : givers[size_t(rank)]) {
        if (missing <= Bytes()) break;
        if (giver == own) continue;
        const Bytes taken = std::min(missing, table.common(giver, rank));
        loads.send(replicas.sender(size_t(giver), device.host), device, taken);
        missing -= taken;
      }
    }
  }
  return {{OpClass::kTransfer, loads.slowest()}};
}

}  // namespace nereus
