#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/transition/ancestors.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {

namespace {

[[noreturn]] void fail(const std::string& problem) {
  throw Error(ErrorCode::kInternal, "transition DAG: " + problem);
}

// What is known of a device for one model-stage.
struct Ownership {
  int owner = -1;     // the unit that holds it now
  int freed_by = -1;  // the primitive that released it last
  int first_of = -1;  // a unit of the table whose first device it is
};

// Ownership by model-stage and device, in one array.
class Owners {
 public:
  explicit Owners(const TransitionDag& dag) : next_(dag.units.size(), -1) {
    for (const Emu& unit : dag.units) {
      for (const DeviceId device : unit.devices) {
        hosts_ = std::max(hosts_, device.host + 1);
        stride_ = std::max(stride_, device.index + 2);
      }
    }
    for (const StagePlan& stage : dag.from.stages) stages_.push_back(stage.model_stage);
    entries_.resize(stages_.size() * static_cast<size_t>(hosts_ * stride_));
    for (size_t id = 0; id < dag.units.size(); ++id) {
      Ownership& first = at(dag.units[id].model_stage, dag.units[id].devices.front());
      next_[id] = std::exchange(first.first_of, static_cast<int>(id));
    }
  }

  Ownership& at(ModelStage model_stage, DeviceId device) {
    const auto stage = std::ranges::find(stages_, model_stage) - stages_.begin();
    return entries_.at(
        static_cast<size_t>((stage * hosts_ + device.host) * stride_ + device.index + 1));
  }
  // The number of a unit of the table.
  int find(const TransitionDag& dag, const StagePlan& stage, const std::vector<DeviceId>& devices) {
    int id = at(stage.model_stage, devices.front()).first_of;
    while (id >= 0 && (dag.units[id].layout != stage.layout || dag.units[id].devices != devices)) {
      id = next_[id];
    }
    if (id < 0) {
      fail("no unit " + to_string(Emu{stage.model_stage, stage.layout, devices}));
    }
    return id;
  }

 private:
  int hosts_ = 0;
  int stride_ = 1;
  std::vector<ModelStage> stages_;
  std::vector<Ownership> entries_;
  std::vector<int> next_;  // by unit: another one with the same first device
};

// Replays the primitives in their order, and checks that the edges alone enforce what matters in
// it.
class Replay {
 public:
  explicit Replay(const TransitionDag& dag)
      : dag_(dag),
        ancestors_(dag.primitives.size()),
        owners_(dag),
        live_(dag.units.size()),
        wanted_(dag.units.size()),
        maker_(dag.units.size(), -1),
        freer_(dag.units.size(), -1),
        last_reader_(dag.units.size(), kNone) {}

  void run() {
    find_ends();
    collect_ancestors();
    for (const Primitive& p : dag_.primitives) {
      for (const int unit : p.targets) maker_.at(static_cast<size_t>(unit)) = p.id;
      for (const int unit : p.frees) freer_.at(static_cast<size_t>(unit)) = p.id;
    }
    for (size_t unit = 0; unit < dag_.units.size(); ++unit) {
      units_of_stage_[dag_.units[unit].model_stage].ids.push_back(static_cast<int>(unit));
    }
    for (const Primitive& p : dag_.primitives) step(p);
    for (size_t unit = 0; unit < live_.size(); ++unit) {
      if (live_[unit] == wanted_[unit]) continue;
      fail("it ends with" + std::string(live_[unit] ? " " : "out ") + to_string(dag_.units[unit]) +
           ", unlike the target plan");
    }
  }

 private:
  void refuse_unless(bool good, const Primitive& p, const char* problem) const {
    if (good) return;
    fail("primitive " + std::to_string(p.id) + " (" + to_string(p, dag_.units) + ") " + problem);
  }

  void find_ends();
  void collect_ancestors();
  void check_shape(const Primitive& p) const;
  void step(const Primitive& p);
  void take(const Primitive& p, int unit);
  void give(const Primitive& p, int unit);
  bool lasts(int unit, const Primitive& p) const;
  bool a_copy_stays(const Primitive& known, const Primitive& p, std::vector<bool>& asked);

  // True if `earlier` has ended before `p` starts in every execution.
  bool waits(const Primitive& p, int earlier) const {
    return earlier < 0 || ancestors_.contains(p.id, earlier);
  }

  const TransitionDag& dag_;
  Ancestors ancestors_;
  Owners owners_;
  std::vector<bool> live_;
  std::vector<bool> wanted_;
  std::vector<int> maker_;
  std::vector<int> freer_;
  // Who read a unit and does not free it: a list for each unit, last one first.
  struct Reader {
    int primitive = 0;
    size_t before = 0;  // in readers_
  };
  static constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> last_reader_;
  std::vector<Reader> readers_;
  struct StageUnits {
    std::vector<int> ids;
    int survivor = -1;  // the last that was found to stay
  };
  std::map<ModelStage, StageUnits> units_of_stage_;
};

// What is live at the beginning and what is wanted at the end, of the model-stages that change.
void Replay::find_ends() {
  for (const StagePlan& before : dag_.from.stages) {
    const StagePlan& after = at(dag_.to, before.model_stage);
    if (before.layout == after.layout && before.units == after.units) continue;
    for (const std::vector<DeviceId>& devices : before.units) {
      const int id = owners_.find(dag_, before, devices);
      live_[id] = true;
      for (const DeviceId device : devices) owners_.at(before.model_stage, device).owner = id;
    }
    for (const std::vector<DeviceId>& devices : after.units) {
      wanted_[owners_.find(dag_, after, devices)] = true;
    }
  }
}

void Replay::collect_ancestors() {
  const auto count = static_cast<int>(dag_.primitives.size());
  std::vector<Edge> edges = dag_.edges;
  std::ranges::sort(edges, {}, &Edge::to);
  auto edge = edges.begin();
  Ancestors::Set set;
  for (int id = 0; id < count; ++id) {
    if (dag_.primitives[id].id != id) fail("ids are not 0 … n-1 in order");
    ancestors_.copy(id, set);
    for (; edge != edges.end() && edge->to <= id; ++edge) {
      if (edge->from < 0 || edge->from >= edge->to) break;
      ancestors_.join(set, edge->from);
    }
    ancestors_.set(id, set);
  }
  if (edge != edges.end()) {
    fail("edge " + std::to_string(edge->from) + " → " + std::to_string(edge->to) +
         " goes back or out of the graph: cyclic");
  }
}

void Replay::check_shape(const Primitive& p) const {
  const size_t sources = p.sources.size();
  const size_t targets = p.targets.size();
  switch (p.kind) {
    case PrimitiveKind::kSplit:
      refuse_unless(sources == 1 && targets > 0, p, "must make units of one");
      break;
    case PrimitiveKind::kMerge:
      refuse_unless(sources > 0 && targets == 1, p, "must make one unit of others");
      break;
    case PrimitiveKind::kExtend:
      refuse_unless(sources > 0 && targets == 1 && p.frees.empty(), p, "must copy into one unit");
      break;
    case PrimitiveKind::kDestroy:
      refuse_unless(sources == 1 && targets == 0, p, "must free one unit");
      break;
    case PrimitiveKind::kRoute:
      refuse_unless(sources > 0 && targets > 0, p, "must make units of others");
      break;
  }
  const bool frees_all =
      p.kind == PrimitiveKind::kExtend || p.kind == PrimitiveKind::kRoute || p.frees == p.sources;
  refuse_unless(frees_all, p, "must free its sources");
  if (p.kind != PrimitiveKind::kSplit && p.kind != PrimitiveKind::kMerge) return;
  const auto devices = [&](const std::vector<int>& ids) {
    size_t sum = 0;
    for (const int id : ids) sum += dag_.units[id].devices.size();
    return sum;
  };
  // As many as it frees, and take() refuses those that another unit owns.
  refuse_unless(devices(p.sources) == devices(p.targets), p, "must stay on its devices");
}

void Replay::step(const Primitive& p) {
  check_shape(p);
  for (const int source : p.sources) {
    refuse_unless(live_[source], p, "uses a unit that is not there");
    refuse_unless(dag_.units[source].model_stage == p.model_stage, p, "mixes model-stages");
    refuse_unless(waits(p, maker_[source]), p, "does not wait for its source to be made");
    const bool frees = std::ranges::count(p.frees, source) > 0;
    if (!frees) {
      readers_.push_back({p.id, std::exchange(last_reader_[source], readers_.size())});
    }
  }
  for (const int unit : p.frees) give(p, unit);
  for (const int unit : p.targets) take(p, unit);
  if (p.kind == PrimitiveKind::kDestroy) {
    std::vector<bool> asked(dag_.primitives.size());
    refuse_unless(a_copy_stays(p, p, asked), p, "drops the last complete copy");
  }
}

void Replay::give(const Primitive& p, int unit) {
  for (size_t i = last_reader_[unit]; i != kNone; i = readers_[i].before) {
    refuse_unless(waits(p, readers_[i].primitive), p,
                  "does not wait for a reader of what it frees");
  }
  live_[unit] = false;
  for (const DeviceId device : dag_.units[unit].devices) {
    Ownership& held = owners_.at(p.model_stage, device);
    if (held.owner == unit) held.owner = -1;
    held.freed_by = p.id;
  }
}

void Replay::take(const Primitive& p, int unit) {
  refuse_unless(!live_[unit], p, "makes a unit that is there");
  refuse_unless(dag_.units[unit].model_stage == p.model_stage, p, "mixes model-stages");
  live_[unit] = true;
  for (const DeviceId device : dag_.units[unit].devices) {
    Ownership& held = owners_.at(p.model_stage, device);
    const bool hand_over = held.owner >= 0 && std::ranges::count(p.sources, held.owner) > 0;
    refuse_unless(held.owner < 0 || hand_over, p, "takes a device that another unit owns");
    refuse_unless(held.freed_by == p.id || waits(p, held.freed_by), p,
                  "does not wait until its device is free");
    held.owner = unit;
  }
}

// True if the unit, or what was made of it, is never freed or only after p.
bool Replay::lasts(int unit, const Primitive& p) const {
  const int freer = freer_[unit];
  if (freer < 0 || ancestors_.contains(freer, p.id)) return true;
  const Primitive& end = dag_.primitives[freer];
  return freer != p.id && std::ranges::any_of(end.targets, [&](int t) { return lasts(t, p); });
}

// True if one of the units that are there before `known` lasts until p has ended, or was freed only
// when another copy was there that does. `asked`: primitives that were looked at already.
bool Replay::a_copy_stays(const Primitive& known, const Primitive& p, std::vector<bool>& asked) {
  StageUnits& units = units_of_stage_[p.model_stage];
  const auto good = [&](int unit) { return waits(known, maker_[unit]) && lasts(unit, p); };
  // What lasted for another primitive most likely does for this one.
  if (units.survivor >= 0 && good(units.survivor)) return true;
  const auto found = std::ranges::find_if(units.ids, good);
  if (found != units.ids.end()) {
    units.survivor = *found;
    return true;
  }
  return std::ranges::any_of(units.ids, [&](int unit) {
    const int freer = freer_[unit];
    if (!waits(known, maker_[unit]) || freer < 0 || freer == p.id || asked[freer]) return false;
    asked[freer] = true;
    return a_copy_stays(dag_.primitives[freer], p, asked);
  });
}

}  // namespace

void verify(const TransitionDag& dag) { Replay(dag).run(); }

}  // namespace nereus
