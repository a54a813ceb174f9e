#include "nereus/core/transition/local_dag.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "nereus/core/transition/copy_pool.h"

namespace nereus {

Layout common_part(Layout a, Layout b) {
  Layout sub;
  sub.tp = std::gcd(a.tp, b.tp);
  sub.pp = std::gcd(a.pp, b.pp);
  sub.ep = std::gcd(std::gcd(a.ep, b.ep), sub.tp);
  sub.zero = std::gcd(a.zero, b.zero);
  return sub;
}

namespace {

// The sub-units that a unit is cut into: blocks of neighbouring ranks.
EmuCollection blocks(const Emu& unit, Layout sub) {
  const Layout whole = unit.layout;
  EmuCollection parts;
  parts.reserve(static_cast<size_t>(whole.devices() / sub.devices()));
  for (int zero = 0; zero < whole.zero; zero += sub.zero) {
    for (int pp = 0; pp < whole.pp; pp += sub.pp) {
      for (int tp = 0; tp < whole.tp; tp += sub.tp) {
        Emu& part = parts.emplace_back(Emu{unit.model_stage, sub, {}});
        part.devices.reserve(static_cast<size_t>(sub.devices()));
        for (int z = zero; z < zero + sub.zero; ++z) {
          for (int p = pp; p < pp + sub.pp; ++p) {
            const auto row = unit.devices.begin() + (z * whole.pp + p) * whole.tp + tp;
            part.devices.insert(part.devices.end(), row, row + sub.tp);
          }
        }
      }
    }
  }
  return parts;
}

bool share_a_device(const Emu& a, const Emu& b) {
  return std::ranges::any_of(a.devices, [&](DeviceId d) { return index_of(b, d) >= 0; });
}

// A number for each device of two plans; -1 until it is set.
class DeviceMap {
 public:
  DeviceMap(const StagePlan& from, const StagePlan& to) {
    int hosts = 0;
    for (const StagePlan* plan : {&from, &to}) {
      for (const std::vector<DeviceId>& unit : plan->units) {
        for (const DeviceId device : unit) {
          hosts = std::max(hosts, device.host + 1);
          stride_ = std::max(stride_, device.index + 1);
        }
      }
    }
    numbers_.assign(static_cast<size_t>(hosts) * static_cast<size_t>(stride_), -1);
  }
  int& operator[](DeviceId device) { return numbers_[place(device)]; }
  int operator[](DeviceId device) const { return numbers_[place(device)]; }

 private:
  size_t place(DeviceId device) const {
    return static_cast<size_t>(device.host) * static_cast<size_t>(stride_) +
           static_cast<size_t>(device.index);
  }
  int stride_ = 1;
  std::vector<int> numbers_;
};

class LocalCompiler {
 public:
  LocalCompiler(const StagePlan& from, const StagePlan& to, EmuCollection& units)
      : model_stage_(from.model_stage),
        sub_(common_part(from.layout, to.layout)),
        units_(units),
        first_unit_(static_cast<int>(units.size())),
        part_of_(from, to),
        old_part_of_(from, to) {
    units.reserve(units.size() + from.units.size() + to.units.size());
    DeviceMap first_of(from, to);
    for (Emu& unit : units_of(from)) {
      before_.push_back(append(std::move(unit)));
      first_of[units_[before_.back()].devices.front()] = before_.back();
    }
    for (const std::vector<DeviceId>& devices : to.units) {
      const int same = first_of[devices.front()];
      if (same >= 0 && from.layout == to.layout && units_[same].devices == devices) {
        kept_.push_back(same);
      } else {
        made_.push_back(append({model_stage_, to.layout, devices}));
      }
    }
    std::vector<bool> is_kept(before_.size());
    for (const int unit : kept_) is_kept[unit - first_unit_] = true;
    std::ranges::copy_if(before_, std::back_inserter(given_up_),
                         [&](int unit) { return !is_kept[unit - first_unit_]; });
  }

  LocalDag primitives();
  LocalDag route();
  LocalDag staging(int host);

 private:
  // A sub-unit of which a new unit is made.
  struct Part {
    std::optional<Emu> unit;  // nothing: the new unit itself
    int id = -1;              // in the table, once it is known whether an old unit has it
    int whole = -1;
  };
  const Emu& unit_of(const Part& part) const { return part.unit ? *part.unit : units_[part.whole]; }

  int append(Emu unit) {
    units_.push_back(std::move(unit));
    return static_cast<int>(units_.size()) - 1;
  }
  // A new unit that is not merged is its own only part.
  int number_of(const Part& part) { return part.unit ? append(*part.unit) : part.whole; }
  int add(PrimitiveKind kind, std::vector<int> sources, std::vector<int> targets,
          std::vector<int> frees) {
    Primitive& primitive = dag_.primitives.emplace_back();
    primitive.id = static_cast<int>(dag_.primitives.size()) - 1;
    primitive.kind = kind;
    primitive.model_stage = model_stage_;
    primitive.sources = std::move(sources);
    primitive.targets = std::move(targets);
    primitive.frees = std::move(frees);
    return primitive.id;
  }
  int destroy(int unit) { return add(PrimitiveKind::kDestroy, {unit}, {}, {unit}); }

  void find_parts();
  EmuCollection cut(const Emu& unit, const std::function<const Emu*(DeviceId)>& wanted) const;
  int part_like(const Emu& piece) const;
  void split();
  void keep_a_last_copy();
  void extend();
  void merge();
  void find_needs();

  ModelStage model_stage_;
  Layout sub_;
  EmuCollection& units_;
  int first_unit_;
  DeviceMap part_of_;      // into parts_
  DeviceMap old_part_of_;  // old units that can be parts as they are
  std::vector<int> before_;
  std::vector<int> given_up_;
  std::vector<int> kept_;
  std::vector<int> made_;

  std::vector<Part> parts_;
  std::vector<int> survivors_;  // copies that stay until the new units are made
  std::vector<int> obsolete_;
  int last_copy_ = -1;  // if nothing survives: to copy from, then to destroy
  LocalDag dag_;
};

LocalDag LocalCompiler::primitives() {
  find_parts();
  split();
  if (survivors_.empty()) keep_a_last_copy();
  for (const int unit : obsolete_) destroy(unit);
  extend();
  if (last_copy_ >= 0) destroy(last_copy_);
  merge();
  find_needs();
  return std::move(dag_);
}

// Old units that can be parts as they are, and whatever is left in the order of ranks.
void LocalCompiler::find_parts() {
  for (const int unit : given_up_) {
    if (units_[unit].layout != sub_) continue;
    for (const DeviceId device : units_[unit].devices) old_part_of_[device] = unit;
  }
  const auto old_part = [&](DeviceId device) {
    const int unit = old_part_of_[device];
    return unit < 0 ? nullptr : &units_[unit];
  };
  for (const int whole : made_) {
    if (units_[whole].layout == sub_) {
      parts_.push_back({std::nullopt, -1, whole});
    } else {
      for (Emu& unit : cut(units_[whole], old_part)) parts_.push_back({std::move(unit), -1, whole});
    }
  }
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (const DeviceId device : unit_of(parts_[part]).devices) {
      part_of_[device] = static_cast<int>(part);
    }
  }
}

// Cuts a unit into sub-units. Which of its devices form one is free, as each is a complete copy:
// those that are `wanted` and lie wholly on the unit's devices, else neighbouring ranks.
EmuCollection LocalCompiler::cut(const Emu& unit,
                                 const std::function<const Emu*(DeviceId)>& wanted) const {
  EmuCollection pieces;
  std::vector<DeviceId> rest;
  for (const DeviceId device : unit.devices) {
    const Emu* piece = wanted(device);
    const bool inside = piece != nullptr && std::ranges::all_of(piece->devices, [&](DeviceId d) {
                          return index_of(unit, d) >= 0;
                        });
    if (!inside) {
      rest.push_back(device);
    } else if (piece->devices.front() == device) {
      pieces.push_back({unit.model_stage, sub_, piece->devices});
    }
  }
  if (pieces.empty()) return blocks(unit, sub_);
  for (auto first = rest.begin(); first != rest.end(); first += sub_.devices()) {
    pieces.push_back({unit.model_stage, sub_, {first, first + sub_.devices()}});
  }
  return pieces;
}

// The part that a piece of an old unit is, or -1.
int LocalCompiler::part_like(const Emu& piece) const {
  const int part = part_of_[piece.devices.front()];
  return part >= 0 && unit_of(parts_[part]) == piece ? part : -1;
}

void LocalCompiler::split() {
  survivors_ = kept_;
  const auto part_at = [&](DeviceId device) {
    const int part = part_of_[device];
    return part < 0 ? nullptr : &unit_of(parts_[part]);
  };
  for (const int unit : given_up_) {
    if (units_[unit].layout == sub_) {
      const int part = part_like(units_[unit]);
      if (part >= 0) parts_[part].id = unit;
      (part >= 0 ? survivors_ : obsolete_).push_back(unit);
      continue;
    }
    EmuCollection pieces = cut(units_[unit], part_at);
    if (std::ranges::none_of(pieces, [&](const Emu& piece) { return part_like(piece) >= 0; })) {
      obsolete_.push_back(unit);
      continue;
    }
    std::vector<int> ids;
    ids.reserve(pieces.size());
    for (Emu& piece : pieces) {
      const int part = part_like(piece);
      ids.push_back(part >= 0 ? number_of(parts_[part]) : append(std::move(piece)));
      if (part >= 0) parts_[part].id = ids.back();
      (part >= 0 ? survivors_ : obsolete_).push_back(ids.back());
    }
    // One piece is a Split too if it differs in how experts are spread.
    add(PrimitiveKind::kSplit, {unit}, ids, {unit});
  }
}

// That which stands least in the way of the new units.
void LocalCompiler::keep_a_last_copy() {
  std::vector<DeviceId> wanted;
  for (const int unit : made_) {
    wanted.insert(wanted.end(), units_[unit].devices.begin(), units_[unit].devices.end());
  }
  std::ranges::sort(wanted);
  const auto in_the_way = [&](int unit) {
    return std::ranges::count_if(units_[unit].devices,
                                 [&](DeviceId d) { return std::ranges::binary_search(wanted, d); });
  };
  const auto best = std::ranges::min_element(obsolete_, {}, in_the_way);
  last_copy_ = *best;
  obsolete_.erase(best);
}

// Each new part is copied from one replica, also from new ones.
void LocalCompiler::extend() {
  CopyPool copies;
  for (const int copy : survivors_) copies.add(copy, units_[copy].devices.front());
  if (last_copy_ >= 0) copies.add(last_copy_, units_[last_copy_].devices.front());
  for (Part& part : parts_) {
    if (part.id >= 0) continue;
    const Emu& unit = unit_of(part);
    const DeviceId first = unit.devices.front();
    // What takes the devices of the last copy takes over from it.
    const bool hand_over = last_copy_ >= 0 && share_a_device(unit, units_[last_copy_]);
    const int source = hand_over ? last_copy_ : copies.next(first);
    part.id = number_of(part);
    add(PrimitiveKind::kExtend, {source}, {part.id}, {});
    copies.add(part.id, first);
  }
}

void LocalCompiler::merge() {
  for (auto part = parts_.begin(); part != parts_.end();) {
    std::vector<int> ids;
    const int whole = part->whole;
    for (; part != parts_.end() && part->whole == whole; ++part) ids.push_back(part->id);
    if (units_[whole].layout != sub_) add(PrimitiveKind::kMerge, ids, {whole}, ids);
  }
}

// A unit is made before it is used and read before it is freed, and one unit of a model-stage owns
// a device at a time, but for the last copy while it is copied.
void LocalCompiler::find_needs() {
  const size_t units = units_.size() - static_cast<size_t>(first_unit_);
  std::vector<int> maker(units, -1);
  std::vector<std::vector<int>> readers(units);
  std::map<DeviceId, int> released;
  for (const Primitive& p : dag_.primitives) {
    const size_t first_need = dag_.needs.size();
    const auto need = [&](int earlier) {
      if (earlier >= 0) dag_.needs.emplace_back(earlier, p.id);
    };
    for (const int source : p.sources) need(maker[source - first_unit_]);
    for (const int unit : p.frees) {
      for (const int reader : readers[unit - first_unit_]) need(reader);
    }
    for (const int target : p.targets) {
      maker[target - first_unit_] = p.id;
      if (p.kind == PrimitiveKind::kSplit || released.empty()) continue;
      for (const DeviceId device : units_[target].devices) {
        const auto found = released.find(device);
        if (found != released.end()) need(found->second);
      }
    }
    if (p.frees.empty()) {
      for (const int source : p.sources) readers[source - first_unit_].push_back(p.id);
    }
    if (p.kind == PrimitiveKind::kDestroy) {
      for (const DeviceId device : units_[p.sources.front()].devices) released[device] = p.id;
    }
    const auto first = dag_.needs.begin() + static_cast<std::ptrdiff_t>(first_need);
    std::sort(first, dag_.needs.end());
    dag_.needs.erase(std::unique(first, dag_.needs.end()), dag_.needs.end());
  }
}

LocalDag LocalCompiler::route() {
  if (made_.empty()) {
    for (const int unit : given_up_) destroy(unit);
  } else {
    add(PrimitiveKind::kRoute, before_, made_, given_up_);
  }
  return std::move(dag_);
}

LocalDag LocalCompiler::staging(int host) {
  const int parked = append({model_stage_, Layout{}, {{host, kHostMemory}}});
  const auto on_host = [&](int id) {
    return std::ranges::count(units_[id].devices, host, &DeviceId::host);
  };
  const int nearest = *std::ranges::max_element(given_up_, {}, on_host);
  add(PrimitiveKind::kExtend, {nearest}, {parked}, {});
  for (const int unit : given_up_) destroy(unit);
  add(PrimitiveKind::kRoute, {parked}, made_, {});
  destroy(parked);
  find_needs();
  // The parked copy is the last one.
  for (const Primitive& p : dag_.primitives) {
    const bool is_old = p.kind == PrimitiveKind::kDestroy && p.sources.front() != parked;
    if (is_old && p.sources.front() != nearest) dag_.needs.emplace_back(0, p.id);
  }
  return std::move(dag_);
}

}  // namespace

LocalDag compile_local(const StagePlan& from, const StagePlan& to, Passage passage,
                       EmuCollection& units, int staging_host) {
  LocalCompiler compiler(from, to, units);
  switch (passage) {
    case Passage::kRoute:
      return compiler.route();
    case Passage::kHostStaging:
      return compiler.staging(staging_host);
    case Passage::kPrimitives:
      break;
  }
  return compiler.primitives();
}

}  // namespace nereus
