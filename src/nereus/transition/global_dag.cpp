#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "nereus/transition/duration.h"
#include "nereus/transition/transition_dag.h"

namespace nereus {

namespace {

using DeviceBytes = std::map<DeviceId, Bytes>;

// A primitive that waits for its turn.
struct Candidate {
  Primitive primitive;
  std::vector<std::pair<int, EdgeKind>> needs;  // candidates, by index
  DeviceBytes takes;                            // its targets
  DeviceBytes frees;                            // the sources it consumes, when it is done
  int id = -1;                                  // place in the order, once it has one
};

struct Shortage {
  DeviceId device;
  Bytes needed;
  Bytes free;
};

// List scheduling. Whatever was ordered may run early or late as long as the edges hold, so an
// acquisition counts earlier releases only if an edge makes it wait for them.
class Scheduler {
 public:
  Scheduler(const Plan& from, const Plan& to, const JobSpec& job, const Cluster& cluster,
            const Calibration& calibration)
      : job_(job), cluster_(cluster), calibration_(calibration) {
    dag_.from = from;
    dag_.to = to;
  }

  Expected<TransitionDag> run() {
    for (const StagePlan& stage : dag_.from.stages) {
      schemas_[stage.model_stage] =
          state_schema(job_.models.at(stage.model_stage.role), stage.model_stage);
      for (const Emu& unit : units_of(stage)) add_bytes(live_, unit);
    }
    dag_.peak_bytes = live_;
    collect();
    for (size_t done = 0; done < candidates_.size(); ++done) {
      const int next = choose();
      if (next < 0) return tl::unexpected(why_stuck());
      execute(candidates_[next]);
    }
    return std::move(dag_);
  }

 private:
  // All local DAGs in stage order, then role order.
  void collect() {
    std::vector<ModelStage> order;
    for (const StagePlan& stage : dag_.from.stages) order.push_back(stage.model_stage);
    std::ranges::sort(order, {}, [](ModelStage m) { return std::pair(m.stage, m.role); });
    for (const ModelStage model_stage : order) {
      LocalDag local = compile_local(at(dag_.from, model_stage), at(dag_.to, model_stage));
      const int base = static_cast<int>(candidates_.size());
      for (Primitive& primitive : local.primitives) {
        Candidate candidate{std::move(primitive)};
        for (const Emu& unit : candidate.primitive.targets) add_bytes(candidate.takes, unit);
        if (consumes_sources(candidate.primitive.kind)) {
          for (const Emu& unit : candidate.primitive.sources) add_bytes(candidate.frees, unit);
        }
        candidates_.push_back(std::move(candidate));
      }
      for (const Edge& edge : local.edges) {
        candidates_[base + edge.to].needs.emplace_back(base + edge.from, edge.kind);
      }
    }
  }

  void add_bytes(DeviceBytes& sum, const Emu& unit) {
    auto& ranks = rank_bytes_[{unit.model_stage, unit.layout}];
    if (ranks.empty()) {
      for (int index = 0; index < unit.layout.devices(); ++index) {
        ranks.push_back(state_bytes(schemas_.at(unit.model_stage), unit.layout, index));
      }
    }
    for (size_t index = 0; index < ranks.size(); ++index) {
      sum[unit.devices[index]] += ranks[index];
    }
  }

  bool ready(const Candidate& candidate) const {
    return candidate.id < 0 &&
           std::ranges::all_of(
               candidate.needs, [&](const auto& need) { return candidates_[need.first].id >= 0; });
  }

  std::optional<Shortage> shortage(const Candidate& candidate) const {
    for (const auto& [device, bytes] : candidate.takes) {
      const auto live = live_.find(device);
      const Bytes used = live == live_.end() ? Bytes() : live->second;
      if (used + bytes > cluster_.device.memory) {
        return Shortage{device, bytes, cluster_.device.memory - used};
      }
    }
    return std::nullopt;
  }

  // Release before acquire: a Destroy only frees, a Merge frees more than it takes.
  static int urgency(PrimitiveKind kind) {
    if (kind == PrimitiveKind::kDestroy) return 0;
    return kind == PrimitiveKind::kMerge ? 1 : 2;
  }

  // The first candidate that is ready and fits, or -1.
  int choose() const {
    int best = -1;
    for (int i = 0; i < static_cast<int>(candidates_.size()); ++i) {
      const Candidate& candidate = candidates_[i];
      const bool better =
          best < 0 || urgency(candidate.primitive.kind) < urgency(candidates_[best].primitive.kind);
      if (better && ready(candidate) && !shortage(candidate)) best = i;
    }
    return best;
  }

  std::string why_stuck() const {
    const auto blocked =
        std::ranges::find_if(candidates_, [&](const Candidate& c) { return ready(c); });
    NEREUS_CHECK(blocked != candidates_.end(), "the local DAGs are cyclic");
    const Shortage lack = shortage(*blocked).value();
    return "the transition does not fit: " + to_string(blocked->primitive) + " needs " +
           to_string(lack.needed) + " on device " + to_string(lack.device) + ", where " +
           to_string(std::max(lack.free, Bytes())) + " of " + to_string(cluster_.device.memory) +
           " are free and nothing more can be released before it";
  }

  void execute(Candidate& candidate) {
    candidate.id = static_cast<int>(dag_.primitives.size());
    ancestors_.emplace_back();
    for (const auto& [need, kind] : candidate.needs) {
      add_edge(candidates_[need].id, candidate.id, kind);
    }
    for (const auto& [device, bytes] : candidate.takes) {
      wait_for_releases(candidate.id, device, bytes);
      live_[device] += bytes;
      dag_.peak_bytes[device] = std::max(dag_.peak_bytes[device], live_[device]);
    }
    for (const auto& [device, bytes] : candidate.frees) {
      live_[device] -= bytes;
      releases_[device].emplace_back(candidate.id, bytes);
    }
    dag_.primitives.push_back(costed(std::move(candidate.primitive), candidate.id));
    dag_.makespan += dag_.primitives.back().predicted;
  }

  void add_edge(int from, int to, EdgeKind kind) {
    dag_.edges.push_back({from, to, kind});
    ancestors_[to].insert(from);
    ancestors_[to].insert(ancestors_[from].begin(), ancestors_[from].end());
  }

  // Adds resource edges, oldest release first, until `bytes` fit on `device` for sure.
  void wait_for_releases(int id, DeviceId device, Bytes bytes) {
    const auto& releases = releases_[device];
    const auto uncertain = [&] {
      Bytes sum;
      for (const auto& [release, freed] : releases) {
        if (!ancestors_[id].contains(release)) sum += freed;
      }
      return sum;
    };
    for (const auto& [release, freed] : releases) {
      if (live_[device] + uncertain() + bytes <= cluster_.device.memory) return;
      if (!ancestors_[id].contains(release)) add_edge(release, id, EdgeKind::kResource);
    }
  }

  Primitive costed(Primitive primitive, int id) const {
    const StateSchema& schema = schemas_.at(primitive.model_stage);
    const ReshardPlan plan = moves_of(primitive, schema);
    primitive.id = id;
    primitive.bytes_moved = plan.moved;
    primitive.bytes_resident = plan.resident;
    primitive.predicted =
        ideal_duration(plan, schema, cluster_) * (1 / calibration_.efficiency(OpClass::kTransfer));
    return primitive;
  }

  const JobSpec& job_;
  const Cluster& cluster_;
  const Calibration& calibration_;
  std::map<ModelStage, StateSchema> schemas_;
  std::map<std::pair<ModelStage, Layout>, std::vector<Bytes>> rank_bytes_;
  std::vector<Candidate> candidates_;
  DeviceBytes live_;
  std::map<DeviceId, std::vector<std::pair<int, Bytes>>> releases_;  // in order
  std::vector<std::set<int>> ancestors_;
  TransitionDag dag_;
};

void require_same_stages(const Plan& from, const Plan& to) {
  for (const auto& [here, there] : {std::pair(&from, &to), std::pair(&to, &from)}) {
    for (const StagePlan& stage : here->stages) {
      if (find(*there, stage.model_stage) == nullptr) {
        throw Error(ErrorCode::kInvalidInput,
                    "only one of the two plans has " + to_string(stage.model_stage) +
                        ": a transition needs the same model-stages on both sides");
      }
    }
  }
}

}  // namespace

Expected<TransitionDag> compile_transition(const Plan& from, const Plan& to, const JobSpec& job,
                                           const Cluster& cluster, const Calibration& calibration) {
  require_same_stages(from, to);
  Expected<TransitionDag> dag = Scheduler(from, to, job, cluster, calibration).run();
  if (dag) verify(*dag);
  return dag;
}

}  // namespace nereus
