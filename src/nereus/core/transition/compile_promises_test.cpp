// What compiled transitions promise, on random cases, beside brute force over boxes and a replay.
#include "nereus/core/transition/compile.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "nereus/core/transition/random_transition.h"

namespace nereus {
namespace {

using testing::RandomTransition;
using Case = testing::TransitionCase;
using ::testing::AllOf;
using ::testing::HasSubstr;

Expected<TransitionDag> compile(const Case& c, const TransitionOptions& options = {}) {
  return compile_transition(c.from, c.to, c.job, c.cluster, Calibration(), options);
}

// Bytes of state by brute force over boxes, remembered by rank.
class Oracle {
 public:
  explicit Oracle(const JobSpec& job) {
    for (const ModelStage stage : model_stages(job.workflow)) {
      schemas_[stage] = state_schema(job.models.at(stage.role), stage);
    }
  }

  // By layer in pipeline order.
  const std::vector<Bytes>& layers(ModelStage stage, Layout layout, int index) {
    auto& known = layers_[{stage, layout, index}];
    if (!known.empty()) return known;
    const StateSchema& schema = schemas_.at(stage);
    known.resize(static_cast<size_t>(schema.num_layers) + 2);
    for (const TensorSpec& tensor : schema.tensors) {
      const int layer = tensor.layer == kEmbeddingLayer ? 0
                        : tensor.layer == kHeadLayer    ? schema.num_layers + 1
                                                        : tensor.layer + 1;
      known[layer] += volume_of(schema, tensor, {layout, index}, {layout, index});
    }
    return known;
  }
  Bytes rank(ModelStage stage, Layout layout, int index) {
    Bytes sum;
    for (const Bytes layer : layers(stage, layout, index)) sum += layer;
    return sum;
  }
  // What both ranks hold.
  Bytes common(ModelStage stage, std::pair<Layout, int> a, std::pair<Layout, int> b) {
    const auto [entry, is_new] = common_.try_emplace({stage, a, b});
    if (!is_new) return entry->second;
    for (const TensorSpec& tensor : schemas_.at(stage).tensors) {
      entry->second += volume_of(schemas_.at(stage), tensor, a, b);
    }
    return entry->second;
  }

 private:
  static Bytes volume_of(const StateSchema& schema, const TensorSpec& tensor,
                         std::pair<Layout, int> a, std::pair<Layout, int> b) {
    Bytes sum;
    for (const StateComponent& component : schema.components) {
      const auto box_of = [&](const std::pair<Layout, int>& rank) {
        return shard(tensor, schema.num_layers, rank.first, rank_at(rank.first, rank.second),
                     component.kind);
      };
      const auto here = box_of(a);
      const auto there = box_of(b);
      const auto both = here && there ? intersect(*here, *there) : std::nullopt;
      if (both) sum += Bytes(volume(*both) * size_of(component.dtype).count());
    }
    return sum;
  }

  std::map<ModelStage, StateSchema> schemas_;
  std::map<std::tuple<ModelStage, Layout, int>, std::vector<Bytes>> layers_;
  std::map<std::tuple<ModelStage, std::pair<Layout, int>, std::pair<Layout, int>>, Bytes> common_;
};

using DeviceBytes = std::map<DeviceId, Bytes>;

// Replays a DAG event by event in an order that its edges allow, primitives overlapping at random,
// and checks what must hold at every event.
class Replay {
 public:
  Replay(const Case& c, const TransitionDag& dag, Oracle& oracle)
      : case_(c), dag_(dag), oracle_(oracle) {
    for (const StagePlan& stage : c.from.stages) {
      for (const Emu& unit : units_of(stage)) add(unit, 1);
    }
    peak_ = used_;
    for (const Edge& edge : dag.edges) ++open_[edge.to];
    for (const Primitive& p : dag.primitives) {
      if (open_[p.id] == 0) ready_.insert(p.id);
    }
  }

  // The peak of every device.
  DeviceBytes run(RandomTransition& random) {
    while (!ready_.empty() || !running_.empty()) {
      const bool start = running_.empty() || (!ready_.empty() && random.chance(0.6));
      std::set<int>& from = start ? ready_ : running_;
      const int id = *std::next(from.begin(), random.between(0, static_cast<int>(from.size()) - 1));
      from.erase(id);
      if (start) {
        begin(dag_.primitives[id]);
      } else {
        end(dag_.primitives[id]);
      }
    }
    std::multiset<Emu> wanted;
    for (const StagePlan& stage : case_.to.stages) {
      for (Emu& unit : units_of(stage)) wanted.insert(std::move(unit));
    }
    EXPECT_EQ(live_, wanted);
    return peak_;
  }

 private:
  void add(const Emu& unit, int sign) {
    if (sign > 0) {
      live_.insert(unit);
      ++copies_[unit.model_stage];
    } else {
      ASSERT_TRUE(live_.contains(unit));
      live_.erase(live_.find(unit));
      ASSERT_GE(--copies_[unit.model_stage], 1) << "no complete copy";
    }
    for (int i = 0; i < unit.layout.devices(); ++i) {
      const Bytes bytes = oracle_.rank(unit.model_stage, unit.layout, i);
      used_[unit.devices[i]] += Bytes(bytes.count() * sign);
      owners_[{unit.model_stage, unit.devices[i]}] += sign;
    }
  }

  void begin(const Primitive& p) {
    running_.insert(p.id);
    for (const auto& [device, bytes] : rise(p)) {
      peak_[device] = std::max(peak_[device], used_[device] + rising_[device] + bytes);
      rising_[device] += bytes;
    }
  }

  void end(const Primitive& p) {
    for (const auto& [device, bytes] : rise(p)) rising_[device] -= bytes;
    for (const int unit : p.targets) add(dag_.units[unit], 1);
    for (const int unit : p.frees) add(dag_.units[unit], -1);
    for (const int unit : p.targets) {
      for (const DeviceId device : dag_.units[unit].devices) {
        // Two owners only while the only copy is handed over.
        const bool hand_over = std::ranges::any_of(
            p.sources, [&](int source) { return index_of(dag_.units[source], device) >= 0; });
        const int owners = owners_[{p.model_stage, device}];
        EXPECT_LE(owners, hand_over ? 2 : 1) << to_string(p, dag_.units);
      }
    }
    for (const Edge& edge : dag_.edges) {
      if (edge.from == p.id && --open_[edge.to] == 0) ready_.insert(edge.to);
    }
  }

  // The most that usage grows by on each device while a primitive runs.
  DeviceBytes rise(const Primitive& p) {
    std::map<DeviceId, std::pair<std::vector<Bytes>, std::vector<Bytes>>> layers;
    for (const int id : p.targets) collect(dag_.units[id], &layers, true);
    for (const int id : p.frees) collect(dag_.units[id], &layers, false);
    DeviceBytes rises;
    for (const auto& [device, come_and_go] : layers) {
      const auto& [come, go] = come_and_go;
      if (come.empty()) continue;
      Bytes usage;
      const int pp = dag_.units[p.targets.front()].layout.pp;
      for (const int layer : chunk_order(static_cast<int>(come.size()) - 2,
                                         dag_.units[p.sources.front()].layout.pp, pp)) {
        usage += come[layer];
        rises[device] = std::max(rises[device], usage);
        if (p.chunked && !go.empty()) usage -= go[layer];
      }
    }
    return rises;
  }
  void collect(const Emu& unit, auto* layers, bool comes) {
    for (int i = 0; i < unit.layout.devices(); ++i) {
      auto& entry = (*layers)[unit.devices[i]];
      (comes ? entry.first : entry.second) = oracle_.layers(unit.model_stage, unit.layout, i);
    }
  }

  const Case& case_;
  const TransitionDag& dag_;
  Oracle& oracle_;
  std::multiset<Emu> live_;
  std::map<ModelStage, int> copies_;
  std::map<std::pair<ModelStage, DeviceId>, int> owners_;
  DeviceBytes used_;
  DeviceBytes rising_;
  DeviceBytes peak_;
  std::map<int, int> open_;
  std::set<int> ready_;
  std::set<int> running_;
};

// The fewest bytes that any transition must move: what targets hold and their devices do not.
Bytes least_bytes(const Case& c, Oracle& oracle) {
  Bytes sum;
  for (const StagePlan& after : c.to.stages) {
    const StagePlan& before = at(c.from, after.model_stage);
    std::map<DeviceId, std::pair<Layout, int>> held;
    for (const Emu& unit : units_of(before)) {
      for (int i = 0; i < unit.layout.devices(); ++i) held[unit.devices[i]] = {unit.layout, i};
    }
    for (const Emu& unit : units_of(after)) {
      for (int i = 0; i < unit.layout.devices(); ++i) {
        sum += oracle.rank(after.model_stage, unit.layout, i);
        const auto here = held.find(unit.devices[i]);
        if (here != held.end()) {
          sum -= oracle.common(after.model_stage, here->second, {unit.layout, i});
        }
      }
    }
  }
  return sum;
}

Bytes moved(const TransitionDag& dag) {
  Bytes sum;
  for (const Primitive& p : dag.primitives) sum += p.bytes_moved;
  return sum;
}

// Memory of a device; other places are the memory of hosts.
Bytes largest(const DeviceBytes& bytes) {
  Bytes most;
  for (const auto& [device, peak] : bytes) {
    if (!is_host_memory(device)) most = std::max(most, peak);
  }
  return most;
}

struct Counts {
  int cases = 0, tight = 0, infeasible = 0, chunked = 0, staged = 0, waits = 0, fused = 0;
};

void check_replays(const Case& c, const TransitionDag& dag, Oracle& oracle,
                   RandomTransition& random) {
  for (int i = 0; i < 2; ++i) {
    for (const auto& [device, bytes] : Replay(c, dag, oracle).run(random)) {
      const Bytes capacity =
          is_host_memory(device) ? c.cluster.hosts[device.host].memory : c.cluster.device.memory;
      ASSERT_LE(bytes, capacity) << to_string(device);
      if (bytes == Bytes()) continue;
      ASSERT_LE(bytes, dag.peak_bytes.at(device)) << to_string(device);
    }
  }
}

void count(Counts& counts, const TransitionDag& dag) {
  const auto any = [&](auto&& is) { return std::ranges::any_of(dag.primitives, is) ? 1 : 0; };
  counts.chunked += any([](const Primitive& p) { return p.chunked; });
  counts.fused += any([](const Primitive& p) { return p.kind == PrimitiveKind::kRoute; });
  counts.staged += std::ranges::any_of(dag.peak_bytes, [](const auto& entry) {
    return is_host_memory(entry.first) && entry.second > Bytes();
  });
  counts.waits +=
      std::ranges::any_of(dag.edges, [](const Edge& e) { return e.kind == EdgeKind::kResource; });
}

void check_case(uint64_t seed, int devices, Counts& counts) {
  RandomTransition random(seed);
  Case c = random.make(devices);
  Oracle oracle(c.job);
  const TransitionOptions options{.fuse = random.chance(0.5)};
  const auto roomy = compile(c, options);
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  ASSERT_EQ(*compile(c, options), *roomy);
  ASSERT_EQ(Json(Json(*roomy).get<TransitionDag>()), Json(*roomy));
  check_replays(c, *roomy, oracle, random);
  const Bytes least_moved = least_bytes(c, oracle);
  ASSERT_GE(moved(*roomy), least_moved);
  ASSERT_TRUE(!options.fuse || moved(*roomy) == least_moved);
  count(counts, *roomy);

  // Less memory than that took, but enough for both plans.
  DeviceBytes ends[2];
  for (const Plan* plan : {&c.from, &c.to}) {
    for (const StagePlan& stage : plan->stages) {
      for (const Emu& unit : units_of(stage)) {
        for (int i = 0; i < unit.layout.devices(); ++i) {
          ends[plan == &c.to][unit.devices[i]] += oracle.rank(unit.model_stage, unit.layout, i);
        }
      }
    }
  }
  const Bytes least = std::max(largest(ends[0]), largest(ends[1]));
  c.cluster.device.memory =
      least + (largest(roomy->peak_bytes) - least) * (0.1 * random.between(0, 9));
  for (HostSpec& host : c.cluster.hosts) host.memory = least * random.between(0, 16);
  ++counts.cases;
  const auto tight = compile(c, options);
  if (!tight) {
    ASSERT_THAT(tight.error(), AllOf(HasSubstr("does not fit"), HasSubstr("on device ")));
    ++counts.infeasible;
    return;
  }
  ++counts.tight;
  ASSERT_EQ(*compile(c, options), *tight);
  check_replays(c, *tight, oracle, random);
  count(counts, *tight);
}

// NEREUS_CASES chooses how many: a few hundred by default.
TEST(CompileTransition, KeepsItsPromisesForRandomCasesOn8To1024Devices) {
  const char* wish = std::getenv("NEREUS_CASES");
  const int cases = wish == nullptr ? 300 : std::atoi(wish);
  Counts counts;
  for (int seed = 0; seed < cases && !HasFatalFailure(); ++seed) {
    // Small ones often, as they are tried fast; each size up to 1,024.
    const int devices = seed % 50 == 0 ? 1024 : 8 << (seed % 5);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(devices) + " devices");
    check_case(static_cast<uint64_t>(seed), devices, counts);
  }
  std::cout << counts.cases << " cases: with tight memory " << counts.tight << " fit, "
            << counts.infeasible << " do not; fused " << counts.fused << ", layer by layer "
            << counts.chunked << ", through host memory " << counts.staged << ", resource edges "
            << counts.waits << "\n";
  for (const int kind : {counts.tight, counts.infeasible, counts.chunked, counts.fused,
                         counts.staged, counts.waits}) {
    EXPECT_GT(kind, 0);
  }
}

}  // namespace
}  // namespace nereus
