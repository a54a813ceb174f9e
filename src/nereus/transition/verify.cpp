#include <algorithm>
#include <map>
#include <set>

#include "nereus/transition/transition_dag.h"

namespace nereus {

namespace {

// Replays the primitives in their order, and checks that the edges alone enforce what matters in
// it.
class Replay {
 public:
  explicit Replay(const TransitionDag& dag) : dag_(dag) {}

  void run() {
    for (const StagePlan& stage : dag_.from.stages) {
      for (Emu& unit : units_of(stage)) live_.insert(std::move(unit));
    }
    collect_ancestors();
    for (const Primitive& p : dag_.primitives) step(p);
    std::set<Emu> wanted;
    for (const StagePlan& stage : dag_.to.stages) {
      for (Emu& unit : units_of(stage)) wanted.insert(std::move(unit));
    }
    check(live_ == wanted, "it does not end in the units of the target plan");
  }

 private:
  static void check(bool good, const std::string& problem) {
    if (!good) throw Error(ErrorCode::kInternal, "transition DAG: " + problem);
  }
  static void check(bool good, const Primitive& p, const std::string& problem) {
    check(good, "primitive " + std::to_string(p.id) + " (" + to_string(p) + ") " + problem);
  }

  void collect_ancestors() {
    const auto count = static_cast<int>(dag_.primitives.size());
    std::vector<std::vector<int>> needs(count);
    for (const Edge& edge : dag_.edges) {
      check(0 <= edge.from && edge.from < edge.to && edge.to < count,
            "edge " + std::to_string(edge.from) + " → " + std::to_string(edge.to) +
                " goes back or out of the graph: cyclic");
      needs[edge.to].push_back(edge.from);
    }
    ancestors_.resize(count);
    for (int id = 0; id < count; ++id) {
      check(dag_.primitives[id].id == id, "ids are not 0 … n-1 in order");
      for (const int need : needs[id]) {
        ancestors_[id].insert(need);
        ancestors_[id].insert(ancestors_[need].begin(), ancestors_[need].end());
      }
    }
  }

  void step(const Primitive& p) {
    check_shape(p);
    for (const Emu& source : p.sources) {
      check(live_.contains(source), p, "uses " + to_string(source) + ", which is not there");
      const auto maker = maker_.find(source);
      check(maker == maker_.end() || ancestors_[p.id].contains(maker->second), p,
            "does not wait for the primitive that makes " + to_string(source));
    }
    for (const Emu& target : p.targets) {
      check(live_.insert(target).second, p, "makes " + to_string(target) + " a second time");
      maker_[target] = p.id;
    }
    for (const Emu& source : p.sources) {
      if (!consumes_sources(p.kind)) {
        readers_[source].push_back(p.id);
        continue;
      }
      for (const int reader : readers_[source]) {
        check(ancestors_[p.id].contains(reader), p,
              "does not wait for primitive " + std::to_string(reader) + ", which reads its source");
      }
      live_.erase(source);
    }
    check(std::ranges::any_of(live_, [&](const Emu& u) { return u.model_stage == p.model_stage; }),
          p, "drops the last complete copy");
  }

  static void check_shape(const Primitive& p) {
    const size_t sources = p.sources.size();
    const size_t targets = p.targets.size();
    const auto devices = [](const EmuCollection& units) {
      std::set<DeviceId> set;
      for (const Emu& unit : units) set.insert(unit.devices.begin(), unit.devices.end());
      return set;
    };
    switch (p.kind) {
      case PrimitiveKind::kSplit:
        check(sources == 1 && targets > 1, p, "must make several units of one");
        check(devices(p.sources) == devices(p.targets), p, "must stay on its devices");
        break;
      case PrimitiveKind::kMerge:
        check(sources > 1 && targets == 1, p, "must make one unit of several");
        check(devices(p.sources) == devices(p.targets), p, "must stay on its devices");
        break;
      case PrimitiveKind::kExtend:
        check(sources > 0 && targets == 1, p, "must copy into one unit");
        break;
      case PrimitiveKind::kDestroy:
        check(sources == 1 && targets == 0, p, "must free one unit");
        break;
    }
    for (const EmuCollection* units : {&p.sources, &p.targets}) {
      for (const Emu& unit : *units) {
        check(unit.model_stage == p.model_stage, p, "mixes model-stages");
      }
    }
  }

  const TransitionDag& dag_;
  std::set<Emu> live_;
  std::map<Emu, int> maker_;
  std::map<Emu, std::vector<int>> readers_;
  std::vector<std::set<int>> ancestors_;
};

}  // namespace

void verify(const TransitionDag& dag) { Replay(dag).run(); }

}  // namespace nereus
