#include "nereus/cost/weight_sync.h"

#include <algorithm>
#include <optional>

namespace nereus {
namespace {

// What actor training holds where.
class TrainingState {
 public:
  TrainingState(const StagePlan& training, const Cluster& cluster)
      : layout_(training.layout), whole_unit_(cluster.hosts.size()) {
    for (const std::vector<DeviceId>& unit : training.units) {
      for (size_t i = 0; i < unit.size(); ++i) {
        ranks_.emplace_back(unit[i], rank_at(layout_, static_cast<int>(i)));
      }
      const int host = unit.front().host;
      if (std::ranges::all_of(unit, [&](DeviceId device) { return device.host == host; })) {
        whole_unit_.at(size_t(host)) = true;
      }
    }
    std::ranges::sort(ranks_, {}, &Held::first);
  }

  bool whole_unit(int host) const { return whole_unit_.at(size_t(host)); }

  // The share of the weights of a generation rank that `device` holds.
  double share(DeviceId device, Layout layout, Rank rank, int num_layers) const {
    const auto held = std::ranges::lower_bound(ranks_, device, {}, &Held::first);
    if (held == ranks_.end() || held->first != device) return 0;
    const Rank source = held->second;
    const LayerRange needed = stage_layers(num_layers, layout.pp, rank.pp);
    const LayerRange layers = stage_layers(num_layers, layout_.pp, source.pp);
    const int common = std::min(needed.end, layers.end) - std::max(needed.begin, layers.begin);
    return std::max(0, common) / double(needed.end - needed.begin) *
           covered(rank.tp, layout.tp, source.tp, layout_.tp);
  }

 private:
  using Held = std::pair<DeviceId, Rank>;

  // Fraction of the interval of length 1 / parts at `index` that that of another cut covers.
  static double covered(int index, int parts, int other_index, int other_parts) {
    const double begin = std::max(double(index) / parts, double(other_index) / other_parts);
    const double end = std::min(double(index + 1) / parts, double(other_index + 1) / other_parts);
    return std::max(0.0, (end - begin) * parts);
  }

  Layout layout_;
  std::vector<Held> ranks_;
  std::vector<bool> whole_unit_;  // by host
};

}  // namespace

Work sync_work(const StagePlan& training, const StagePlan& generation,
               const std::vector<int64_t>& elements, const ModelUse& actor,
               const Cluster& cluster) {
  const TrainingState sources(training, cluster);
  std::vector<int> receiving(cluster.hosts.size());  // devices that receive from other hosts
  std::vector<std::pair<DeviceId, double>> received;
  for (const std::vector<DeviceId>& unit : generation.units) {
    for (size_t i = 0; i < unit.size(); ++i) {
      const Rank rank = rank_at(generation.layout, static_cast<int>(i));
      const double missing =
          1 - sources.share(unit[i], generation.layout, rank, actor.spec.num_layers);
      if (missing <= 0) continue;
      received.emplace_back(unit[i],
                            missing * double(elements[i]) * double(size_of(actor.weights).count()));
      if (!sources.whole_unit(unit[i].host)) ++receiving.at(size_t(unit[i].host));
    }
  }
  Operations slowest;
  for (const auto& [device, bytes] : received) {
    const int streams = receiving[size_t(device.host)];
    const LinkUse link =
        streams > 0 ? far_link(cluster, device.host, streams) : LinkUse{cluster.in_host};
    const Operations work = send(bytes, link);
    if (work.sum() > slowest.sum()) slowest = work;
  }
  return {{OpClass::kTransfer, slowest}};
}

}  // namespace nereus
