#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

#include "nereus/state/testing.h"
#include "nereus/transition/duration.h"
#include "nereus/transition/transition_dag.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  JobSpec job;
  Cluster cluster;
  Plan from;
  Plan to;
};

Cluster four_hosts(Bytes memory) {
  Cluster cluster = cpu_cluster(4, memory, 2);
  cluster.hosts.resize(4, cluster.hosts.front());
  return cluster;
}

JobSpec ppo_job(const ModelUse& model) {
  ModelUse critic = model;
  critic.spec = as_critic(model.spec);
  return {ppo_workflow(true),
          {{Role::kActor, model}, {Role::kCritic, critic}, {Role::kReference, model}}};
}

Case random_case() {
  ModelUse model = testing::random_model();
  model.spec.head = Head::kLanguageModel;
  Case c{ppo_job(model), four_hosts(Bytes(int64_t{1} << 40))};
  const auto pool = testing::devices_on_hosts_of_four(testing::pick_between(2, 16));
  for (Plan* plan : {&c.from, &c.to}) {
    for (const ModelStage model_stage : model_stages(c.job.workflow)) {
      plan->stages.push_back(testing::random_stage(c.job.model(model_stage.role), model_stage,
                                                   testing::shuffled(pool)));
    }
  }
  return c;
}

Expected<TransitionDag> compile(const Case& c) {
  return compile_transition(c.from, c.to, c.job, c.cluster, Calibration());
}

using DeviceBytes = std::map<DeviceId, Bytes>;

DeviceBytes bytes_of(const Emu& unit, const JobSpec& job) {
  DeviceBytes bytes;
  const auto schema = state_schema(job.models.at(unit.model_stage.role), unit.model_stage);
  for (int index = 0; index < unit.layout.devices(); ++index) {
    bytes[unit.devices[index]] = state_bytes(schema, unit.layout, index);
  }
  return bytes;
}

DeviceBytes bytes_of(const std::set<Emu>& units, const JobSpec& job) {
  DeviceBytes sum;
  for (const Emu& unit : units) {
    for (const auto& [device, bytes] : bytes_of(unit, job)) sum[device] += bytes;
  }
  return sum;
}

std::set<Emu> units_of(const Plan& plan) {
  std::set<Emu> units;
  for (const StagePlan& stage : plan.stages) {
    for (Emu& unit : nereus::units_of(stage)) units.insert(std::move(unit));
  }
  return units;
}

// The largest sum of state per device when the primitives run in `order`, by brute force.
DeviceBytes replayed_peak(const Case& c, const TransitionDag& dag, const std::vector<int>& order) {
  std::set<Emu> live = units_of(c.from);
  DeviceBytes used = bytes_of(live, c.job);
  DeviceBytes peak = used;
  for (const int id : order) {
    const Primitive& p = dag.primitives[id];
    for (const Emu& unit : p.sources) RC_ASSERT(live.contains(unit));
    for (const Emu& unit : p.targets) {
      live.insert(unit);
      for (const auto& [device, bytes] : bytes_of(unit, c.job)) used[device] += bytes;
    }
    for (const auto& [device, bytes] : used) peak[device] = std::max(peak[device], bytes);
    for (const Emu& unit : consumes_sources(p.kind) ? p.sources : EmuCollection{}) {
      live.erase(unit);
      for (const auto& [device, bytes] : bytes_of(unit, c.job)) used[device] -= bytes;
    }
    std::set<ModelStage> complete;
    for (const Emu& unit : live) complete.insert(unit.model_stage);
    RC_ASSERT(complete.size() == c.from.stages.size());
  }
  RC_ASSERT(live == units_of(c.to));
  return peak;
}

std::vector<int> given_order(const TransitionDag& dag) {
  std::vector<int> order;
  for (const Primitive& p : dag.primitives) order.push_back(p.id);
  return order;
}

// Any order that the edges allow.
std::vector<int> random_order(const TransitionDag& dag) {
  std::set<int> waiting;
  for (const Primitive& p : dag.primitives) waiting.insert(p.id);
  std::vector<int> order;
  while (!waiting.empty()) {
    std::vector<int> ready;
    for (const int id : waiting) {
      const bool blocked = std::ranges::any_of(
          dag.edges, [&](const Edge& e) { return e.to == id && waiting.contains(e.from); });
      if (!blocked) ready.push_back(id);
    }
    RC_ASSERT(!ready.empty());
    order.push_back(ready[testing::pick_between(0, static_cast<int>(ready.size()) - 1)]);
    waiting.erase(order.back());
  }
  return order;
}

TEST(GlobalDag, ReachesTheTargetWithACompleteCopyAtEveryEvent) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case();
    const auto dag = compile(c);
    RC_ASSERT(dag.has_value());
    RC_ASSERT(replayed_peak(c, *dag, given_order(*dag)) == dag->peak_bytes);
    replayed_peak(c, *dag, random_order(*dag));
    RC_ASSERT(*compile(c) == *dag);
    RC_ASSERT(Json(*dag).get<TransitionDag>() == *dag);
    std::set<PrimitiveKind> kinds;
    for (const Primitive& p : dag->primitives) kinds.insert(p.kind);
    RC_CLASSIFY(kinds.size() == 4, "all four primitives");
  }));
}

Bytes largest(const DeviceBytes& bytes) {
  return std::ranges::max_element(bytes, {}, [](const auto& b) { return b.second; })->second;
}

TEST(GlobalDag, NeverExceedsTheMemoryInAnyOrderThatItsEdgesAllow) {
  EXPECT_TRUE(rc::check([] {
    Case c = random_case();
    const Bytes roomy = largest(compile(c)->peak_bytes);
    const Bytes least = std::max(largest(bytes_of(units_of(c.from), c.job)),
                                 largest(bytes_of(units_of(c.to), c.job)));
    c.cluster.device.memory = least + (roomy - least) * (0.01 * testing::pick_between(40, 100));
    const auto dag = compile(c);
    RC_CLASSIFY(dag.has_value(), "fits");
    if (!dag) return;
    RC_CLASSIFY(std::ranges::any_of(dag->edges,
                                    [](const Edge& e) { return e.kind == EdgeKind::kResource; }),
                "resource edges");
    RC_ASSERT(largest(replayed_peak(c, *dag, given_order(*dag))) <= c.cluster.device.memory);
    for (int i = 0; i < 3; ++i) {
      RC_ASSERT(largest(replayed_peak(c, *dag, random_order(*dag))) <= c.cluster.device.memory);
    }
  }));
}

ModelUse small_model() {
  ModelSpec spec;
  spec.vocab_size = 64;
  spec.hidden_size = 8;
  spec.intermediate_size = 16;
  spec.num_layers = 2;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 2;
  return {spec, DType::kFloat32};
}

constexpr ModelStage kActor{Role::kActor, Stage::kTraining};
constexpr ModelStage kCritic{Role::kCritic, Stage::kTraining};

// Two model-stages that exchange their devices 0:0 and 0:1.
Case swap(double copies) {
  Case c{ppo_job(small_model()), cpu_cluster(2, Bytes(), 2)};
  c.from = {{{kActor, {1, 1}, {{{0, 0}}}}, {kCritic, {1, 1}, {{{0, 1}}}}}};
  c.to = {{{kActor, {1, 1}, {{{0, 1}}}}, {kCritic, {1, 1}, {{{0, 0}}}}}};
  c.cluster.device.memory = state_bytes(state_schema(small_model(), kActor), {1, 1}, 0) * copies;
  return c;
}

TEST(GlobalDag, ASwapNeedsRoomForTwo) {
  const auto dag = compile(swap(2));
  ASSERT_TRUE(dag.has_value()) << dag.error();
  ASSERT_EQ(dag->primitives.size(), 4);
  EXPECT_EQ(to_string(dag->primitives[0]), "extend actor/training tp1·pp1 [0:0] → tp1·pp1 [0:1]");
  EXPECT_EQ(to_string(dag->primitives[1]), "destroy actor/training tp1·pp1 [0:0]");
  // The critic's way to 0:0 does not depend on the actor's: there is room for both.
  EXPECT_THAT(dag->edges, ::testing::ElementsAre(Edge{0, 1}, Edge{2, 3}));
}

TEST(GlobalDag, SaysWhyASwapDoesNotFit) {
  const Case c = swap(1.5);
  const auto dag = compile(c);
  ASSERT_FALSE(dag.has_value());
  EXPECT_THAT(dag.error(),
              AllOf(HasSubstr("extend actor/training tp1·pp1 [0:0] → tp1·pp1 [0:1]"),
                    HasSubstr("on device 0:1"), HasSubstr(to_string(c.cluster.device.memory)),
                    HasSubstr(to_string(c.cluster.device.memory * (1 / 1.5)))));
}

TEST(GlobalDag, AnAcquisitionWaitsForTheReleaseThatMakesRoom) {
  // The critic leaves 0:0, of which it has a second copy; only then the actor fits there.
  Case c = swap(1);
  c.cluster = cpu_cluster(3, c.cluster.device.memory, 2);
  c.from = {{{kActor, {1, 1}, {{{0, 2}}}}, {kCritic, {1, 1}, {{{0, 0}}, {{0, 1}}}}}};
  c.to = {{{kActor, {1, 1}, {{{0, 2}}, {{0, 0}}}}, {kCritic, {1, 1}, {{{0, 1}}}}}};
  const auto dag = compile(c);
  ASSERT_TRUE(dag.has_value()) << dag.error();
  EXPECT_EQ(dag->primitives[0].kind, PrimitiveKind::kDestroy);
  EXPECT_EQ(dag->primitives[1].kind, PrimitiveKind::kExtend);
  EXPECT_THAT(dag->edges, ::testing::ElementsAre(Edge{0, 1, EdgeKind::kResource}));
}

TEST(GlobalDag, MergesBeforeAnotherTakesTheRoomForIt) {
  // The reference comes earlier in stage order, but the Merge frees more than it takes.
  constexpr ModelStage kReference{Role::kReference, Stage::kInference};
  Case c = swap(1.6);
  c.cluster = cpu_cluster(3, c.cluster.device.memory, 2);
  c.from = {{{kActor, {1, 1}, {{{0, 0}}, {{0, 1}}}}, {kReference, {1, 1}, {{{0, 2}}}}}};
  c.to = {{{kActor, {2, 1}, {{{0, 0}, {0, 1}}}}, {kReference, {1, 1}, {{{0, 2}}, {{0, 0}}}}}};
  const auto dag = compile(c);
  ASSERT_TRUE(dag.has_value()) << dag.error();
  EXPECT_EQ(dag->primitives[0].kind, PrimitiveKind::kMerge);
  EXPECT_THAT(dag->edges, ::testing::ElementsAre(Edge{0, 1, EdgeKind::kResource}));
}

TEST(GlobalDag, CountsBytesAndPredictsFromThem) {
  const Case c = swap(2);
  const auto dag = compile(c);
  const Bytes actor = state_bytes(state_schema(small_model(), kActor), {1, 1}, 0);
  EXPECT_EQ(dag->primitives[0].bytes_moved, actor);
  EXPECT_EQ(dag->primitives[0].bytes_resident, Bytes());
  const Seconds ideal =
      c.cluster.in_host.latency + Seconds(actor.count() / c.cluster.in_host.bandwidth);
  EXPECT_DOUBLE_EQ(ideal_duration(dag->primitives[0], c.job, c.cluster).count(), ideal.count());
  EXPECT_DOUBLE_EQ(ideal_duration(dag->primitives[1], c.job, c.cluster).count(),
                   c.cluster.local.latency.count());
  Seconds sum;
  for (const Primitive& p : dag->primitives) sum += p.predicted;
  EXPECT_EQ(dag->makespan, sum);
  EXPECT_DOUBLE_EQ(ideal_makespan(*dag, c.job, c.cluster).count(),
                   sum.count() * Calibration().efficiency(OpClass::kTransfer));
}

TEST(GlobalDag, RefusesPlansOfDifferentModelStages) {
  Case c = swap(2);
  c.to.stages.pop_back();
  try {
    compile(c).value();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_THAT(error.what(), HasSubstr("critic/training"));
  }
}

}  // namespace
}  // namespace nereus
