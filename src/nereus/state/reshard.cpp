#include "nereus/state/reshard.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "nereus/base/error.h"

namespace nereus {

namespace {

// One rank of a unit and the box of the tensor at hand that it holds.
struct Holding {
  int unit = 0;
  DeviceId device;
  Box box;
};

// In unit, then rank order.
std::vector<Holding> holdings(std::span<const Emu> units, const TensorSpec& tensor,
                              int num_layers) {
  std::vector<Holding> found;
  for (size_t u = 0; u < units.size(); ++u) {
    const Emu& unit = units[u];
    for (int index = 0; index < unit.layout.devices(); ++index) {
      auto box = shard(tensor, num_layers, unit.layout, rank_at(unit.layout, index));
      if (box) found.push_back({static_cast<int>(u), unit.devices[index], *std::move(box)});
    }
  }
  return found;
}

// 0: on the device itself, 1: on its host, 2: elsewhere.
int distance(DeviceId from, DeviceId to) {
  if (from == to) return 0;
  return from.host == to.host ? 1 : 2;
}

class Resharder {
 public:
  Resharder(std::span<const Emu> sources, std::span<const Emu> targets, const StateSchema& schema)
      : sources_(sources), targets_(targets), schema_(schema) {}

  ReshardPlan run() {
    std::vector<int> order(schema_.tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int t) { return schema_.tensors[t].layer; });
    for (const int tensor : order) {
      const TensorSpec& spec = schema_.tensors[tensor];
      const auto held = holdings(sources_, spec, schema_.num_layers);
      for (const Holding& target : holdings(targets_, spec, schema_.num_layers)) {
        cover(tensor, target, held);
      }
    }
    return std::move(plan_);
  }

 private:
  // Shards of one tensor differ only along its tp_dim: walks along it, taking as long a piece as
  // the best source there has, but stopping where a nearer one begins.
  void cover(int tensor, const Holding& target, const std::vector<Holding>& held) {
    const int cut = std::max(schema_.tensors[tensor].tp_dim, 0);
    Box rest = target.box;
    while (rest.begin[cut] < target.box.end[cut]) {
      const Holding* source = best_source(target.device, rest.begin[cut], cut, held);
      if (source == nullptr) {
        throw Error(ErrorCode::kInvalidInput,
                    "no source unit holds " + schema_.tensors[tensor].name + " " + to_string(rest));
      }
      rest.end[cut] = std::min(target.box.end[cut], source->box.end[cut]);
      for (const Holding& other : held) {
        const int64_t begin = other.box.begin[cut];
        if (begin > rest.begin[cut] && begin < rest.end[cut] &&
            distance(other.device, target.device) < distance(source->device, target.device)) {
          rest.end[cut] = begin;
        }
      }
      add({tensor, rest, source->unit, source->device, target.unit, target.device});
      rest.begin[cut] = rest.end[cut];
    }
  }

  const Holding* best_source(DeviceId to, int64_t position, int cut,
                             const std::vector<Holding>& held) const {
    const auto rank = [&](const Holding& h) {
      return std::tuple(distance(h.device, to), sent(h.device));
    };
    const Holding* best = nullptr;
    for (const Holding& source : held) {
      if (position < source.box.begin[cut] || position >= source.box.end[cut]) continue;
      if (best == nullptr || rank(source) < rank(*best)) best = &source;
    }
    return best;
  }

  Bytes sent(DeviceId device) const {
    const auto found = sent_.find(device);
    return found == sent_.end() ? Bytes() : found->second;
  }

  void add(Move move) {
    const Bytes bytes(volume(move.box) * schema_.bytes_per_element().count());
    if (move.from == move.to) {
      plan_.resident += bytes;
    } else {
      plan_.moved += bytes;
      sent_[move.from] += bytes;
    }
    plan_.moves.push_back(std::move(move));
  }

  std::span<const Emu> sources_;
  std::span<const Emu> targets_;
  const StateSchema& schema_;
  std::map<DeviceId, Bytes> sent_;
  ReshardPlan plan_;
};

}  // namespace

ReshardPlan reshard(std::span<const Emu> sources, std::span<const Emu> targets,
                    const StateSchema& schema) {
  return Resharder(sources, targets, schema).run();
}

std::vector<LinkLoad> link_loads(const ReshardPlan& plan, const StateSchema& schema) {
  std::map<std::pair<DeviceId, DeviceId>, Bytes> by_pair;
  for (const Move& move : plan.moves) {
    if (move.from == move.to) continue;
    by_pair[{move.from, move.to}] += Bytes(volume(move.box) * schema.bytes_per_element().count());
  }
  std::vector<LinkLoad> loads;
  for (const auto& [pair, bytes] : by_pair) loads.push_back({pair.first, pair.second, bytes});
  return loads;
}

}  // namespace nereus
