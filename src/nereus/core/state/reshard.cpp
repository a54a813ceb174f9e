#include "nereus/core/state/reshard.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

// A rank of one of the units.
struct Place {
  int unit = 0;
  int index = 0;   // in rank order
  int layout = 0;  // number of the unit's layout among the distinct ones
  DeviceId device;
  int number = 0;  // of the device among the distinct ones
};

// Which boxes of the tensor at hand the places hold: few distinct ones, as replicas are alike.
struct Held {
  std::vector<Box> boxes;
  std::vector<int> box_of;  // by place; -1: nothing
};

std::vector<int> by_layer(const StateSchema& schema) {
  std::vector<int> order(schema.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int t) { return schema.tensors[t].layer; });
  return order;
}

std::vector<StatePart> parts_of(const StateSchema& schema) {
  std::vector<StatePart> parts;
  for (const StatePart part : kStateParts) {
    if (schema.bytes_per_element(part) > Bytes(0)) parts.push_back(part);
  }
  return parts;
}

// All ranks of a collection of units, in unit, then rank order.
class Places {
 public:
  explicit Places(std::span<const Emu> units) {
    std::map<DeviceId, int> numbers;
    for (size_t u = 0; u < units.size(); ++u) {
      const auto known = std::ranges::find(layouts_, units[u].layout);
      const auto layout = static_cast<int>(known - layouts_.begin());
      if (known == layouts_.end()) layouts_.push_back(units[u].layout);
      for (size_t index = 0; index < units[u].devices.size(); ++index) {
        const DeviceId device = units[u].devices[index];
        const int next = static_cast<int>(numbers.size());
        const int number = numbers.try_emplace(device, next).first->second;
        all_.push_back({static_cast<int>(u), static_cast<int>(index), layout, device, number});
      }
    }
  }

  const std::vector<Place>& all() const { return all_; }

  Held held(const TensorSpec& tensor, int num_layers, StatePart part, const Holds& holds) const {
    Held held;
    std::vector<std::vector<int>> box_of_rank;
    for (const Layout layout : layouts_) {
      auto& of_rank = box_of_rank.emplace_back();
      for (int index = 0; index < layout.devices(); ++index) {
        const Rank rank = rank_at(layout, index);
        const bool here = lives_on(tensor, num_layers, layout.pp, rank.pp);
        of_rank.push_back(here ? number_of(cut(tensor, layout, rank, part), held.boxes) : -1);
      }
    }
    for (const Place& place : all_) {
      const bool there = !holds || holds(place.unit, place.device, tensor.layer);
      held.box_of.push_back(there ? box_of_rank[place.layout][place.index] : -1);
    }
    return held;
  }

 private:
  static int number_of(std::optional<Box> box, std::vector<Box>& boxes) {
    if (!box) return -1;
    const auto known = std::ranges::find(boxes, *box);
    const auto number = static_cast<int>(known - boxes.begin());
    if (known == boxes.end()) boxes.push_back(*std::move(box));
    return number;
  }

  std::vector<Layout> layouts_;
  std::vector<Place> all_;
};

// Preference among sources: less is better.
int distance(DeviceId from, DeviceId to) {
  if (from == to) return 0;
  if (is_host_memory(from)) return 3;
  return from.host == to.host ? 1 : 2;
}

std::string no_unit_holds(StatePart part, const TensorSpec& tensor, const Box& box) {
  return "no unit holds the " + to_string(part) + " of " + tensor.name + " " + to_string(box);
}

class Resharder {
 public:
  Resharder(std::span<const Emu> sources, std::span<const Emu> targets, const StateSchema& schema,
            const Holds& holds)
      : schema_(schema), holds_(holds), sources_(sources), targets_(targets) {
    sent_.resize(sources_.all().size());
  }

  ReshardPlan run() {
    const std::vector<StatePart> parts = parts_of(schema_);
    for (const int tensor : by_layer(schema_)) {
      for (const StatePart part : parts) fill_targets(tensor, part);
    }
    return std::move(plan_);
  }

 private:
  void fill_targets(int tensor, StatePart part) {
    const TensorSpec& spec = schema_.tensors[tensor];
    const Held held = sources_.held(spec, schema_.num_layers, part, holds_);
    const Held wanted = targets_.held(spec, schema_.num_layers, part, {});
    for (size_t i = 0; i < targets_.all().size(); ++i) {
      if (wanted.box_of[i] < 0) continue;
      cover(tensor, part, targets_.all()[i], wanted.boxes[wanted.box_of[i]], held);
    }
  }

  // Takes from the best source all that it has of the box, then goes on with what is left. As no
  // nearer source has anything of the box, what is taken is nowhere nearer.
  void cover(int tensor, StatePart part, const Place& target, const Box& wanted, const Held& held) {
    std::vector<Box> open{wanted};
    while (!open.empty()) {
      const Box box = std::move(open.back());
      open.pop_back();
      const int best = best_source(target.device, box, held);
      if (best < 0) {
        throw Error(ErrorCode::kInvalidInput, no_unit_holds(part, schema_.tensors[tensor], box));
      }
      const Place& source = sources_.all()[best];
      Box taken = *intersect(box, held.boxes[held.box_of[best]]);
      const std::vector<Box> left = subtract(box, taken);
      open.insert(open.end(), left.rbegin(), left.rend());
      add({part, tensor, std::move(taken), source.unit, source.device, target.unit, target.device},
          source.number);
    }
  }

  // The place that holds some of the box, or -1.
  int best_source(DeviceId to, const Box& box, const Held& held) const {
    std::vector<bool> overlaps;
    for (const Box& other : held.boxes) overlaps.push_back(common_volume(box, other) > 0);
    const auto rank = [&](int place) {
      const Place& source = sources_.all()[place];
      return std::tuple(distance(source.device, to), sent_[source.number]);
    };
    int best = -1;
    for (int place = 0; place < static_cast<int>(held.box_of.size()); ++place) {
      const int number = held.box_of[place];
      if (number < 0 || !overlaps[number]) continue;
      if (best < 0 || rank(place) < rank(best)) best = place;
    }
    return best;
  }

  void add(Move move, int sender) {
    const Bytes bytes = bytes_of(move, schema_);
    if (move.from == move.to) {
      plan_.resident += bytes;
    } else {
      plan_.moved += bytes;
      sent_[sender] += bytes;
    }
    plan_.moves.push_back(std::move(move));
  }

  const StateSchema& schema_;
  const Holds& holds_;
  Places sources_;
  Places targets_;
  std::vector<Bytes> sent_;  // by device number of the sources
  ReshardPlan plan_;
};

}  // namespace

Bytes bytes_of(const Move& move, const StateSchema& schema) {
  return Bytes(volume(move.box) * schema.bytes_per_element(move.part).count());
}

ReshardPlan reshard(std::span<const Emu> sources, std::span<const Emu> targets,
                    const StateSchema& schema, const Holds& holds) {
  return Resharder(sources, targets, schema, holds).run();
}

std::vector<std::string> missing_state(std::span<const Emu> sources, const StateSchema& schema,
                                       const Holds& holds) {
  const Places places(sources);
  std::vector<std::string> sentences;
  for (const int tensor : by_layer(schema)) {
    const TensorSpec& spec = schema.tensors[tensor];
    for (const StatePart part : parts_of(schema)) {
      const Held held = places.held(spec, schema.num_layers, part, holds);
      std::vector<Box> rest{whole(spec.shape)};
      for (int number = 0; number < static_cast<int>(held.boxes.size()); ++number) {
        if (std::ranges::find(held.box_of, number) == held.box_of.end()) continue;
        std::vector<Box> left;
        for (const Box& box : rest) {
          const auto common = intersect(box, held.boxes[number]);
          const std::vector<Box> pieces = common ? subtract(box, *common) : std::vector{box};
          left.insert(left.end(), pieces.begin(), pieces.end());
        }
        rest = std::move(left);
      }
      for (const Box& box : rest) sentences.push_back(no_unit_holds(part, spec, box));
    }
  }
  return sentences;
}

std::vector<LinkLoad> link_loads(const ReshardPlan& plan, const StateSchema& schema) {
  std::map<std::pair<DeviceId, DeviceId>, Bytes> by_pair;
  for (const Move& move : plan.moves) {
    if (move.from == move.to) continue;
    by_pair[{move.from, move.to}] += bytes_of(move, schema);
  }
  std::vector<LinkLoad> loads;
  for (const auto& [pair, bytes] : by_pair) loads.push_back({pair.first, pair.second, bytes});
  return loads;
}

}  // namespace nereus
