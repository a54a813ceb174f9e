#include "nereus/core/transition/compile.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "nereus/core/transition/draft.h"
#include "nereus/core/transition/random_transition.h"

namespace nereus {
namespace {

using Case = testing::TransitionCase;
using ::testing::AllOf;
using ::testing::HasSubstr;

Expected<TransitionDag> compile(const Case& c, const TransitionOptions& options = {}) {
  return compile_transition(c.from, c.to, c.job, c.cluster, Calibration(), options);
}

JobSpec ppo_job(const ModelUse& model) {
  ModelUse critic = model;
  critic.spec = as_critic(model.spec);
  return {ppo_workflow(true),
          {{Role::kActor, model}, {Role::kCritic, critic}, {Role::kReference, model}},
          {}};
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

// Two model-stages that exchange their devices 0:0 and 0:1.
Case swap(double copies) {
  Case c{ppo_job(small_model()), cpu_cluster(2, Bytes(), 2)};
  c.from = {{{kActorTraining, {1, 1}, {{{0, 0}}}}, {kCriticTraining, {1, 1}, {{{0, 1}}}}}};
  c.to = {{{kActorTraining, {1, 1}, {{{0, 1}}}}, {kCriticTraining, {1, 1}, {{{0, 0}}}}}};
  c.cluster.device.memory =
      state_bytes(state_schema(small_model(), kActorTraining), {1, 1}, 0) * copies;
  c.cluster.hosts.front().memory = c.cluster.device.memory;
  return c;
}

TEST(CompileTransition, ASwapNeedsRoomForTwo) {
  const auto dag = compile(swap(2));
  ASSERT_TRUE(dag.has_value()) << dag.error();
  ASSERT_EQ(dag->primitives.size(), 2);
  EXPECT_EQ(to_string(dag->primitives[0], dag->units),
            "route actor/training tp1·pp1 [0:0] → tp1·pp1 [0:1]");
  const auto apart = compile(swap(2), {.fuse = false});
  ASSERT_TRUE(apart.has_value()) << apart.error();
  ASSERT_EQ(apart->primitives.size(), 4);
  EXPECT_EQ(to_string(apart->primitives[0], apart->units),
            "extend actor/training tp1·pp1 [0:0] → tp1·pp1 [0:1]");
}

TEST(CompileTransition, ASwapWithoutRoomGoesThroughHostMemory) {
  const auto dag = compile(swap(1));
  ASSERT_TRUE(dag.has_value()) << dag.error();
  std::vector<std::string> steps;
  for (const Primitive& p : dag->primitives) steps.push_back(to_string(p, dag->units));
  EXPECT_THAT(steps, ::testing::Contains(HasSubstr("→ tp1·pp1 [0:host]")));
  for (const auto& [device, bytes] : dag->peak_bytes) {
    EXPECT_TRUE(is_host_memory(device) || bytes <= swap(1).cluster.device.memory);
  }
}

TEST(CompileTransition, SaysWhyASwapDoesNotFit) {
  const Case c = swap(1.5);
  const auto dag = compile(c, {.host_staging = false});
  ASSERT_FALSE(dag.has_value());
  EXPECT_THAT(dag.error(),
              AllOf(HasSubstr("extend actor/training tp1·pp1 [0:0] → tp1·pp1 [0:1]"),
                    HasSubstr("on device 0:1"), HasSubstr(to_string(c.cluster.device.memory)),
                    HasSubstr(to_string(c.cluster.device.memory * (1 / 1.5)))));
}

TEST(CompileTransition, AnAcquisitionWaitsForTheReleaseThatMakesRoom) {
  // The critic leaves 0:0, of which it has a second copy; only then the actor fits there.
  Case c = swap(1);
  c.cluster = cpu_cluster(3, c.cluster.device.memory, 2);
  c.from = {
      {{kActorTraining, {1, 1}, {{{0, 2}}}}, {kCriticTraining, {1, 1}, {{{0, 0}}, {{0, 1}}}}}};
  c.to = {{{kActorTraining, {1, 1}, {{{0, 2}}, {{0, 0}}}}, {kCriticTraining, {1, 1}, {{{0, 1}}}}}};
  const auto dag = compile(c);
  ASSERT_TRUE(dag.has_value()) << dag.error();
  EXPECT_EQ(dag->primitives[0].kind, PrimitiveKind::kDestroy);
  EXPECT_EQ(dag->primitives[1].kind, PrimitiveKind::kExtend);
  EXPECT_THAT(dag->edges, ::testing::ElementsAre(Edge{0, 1, EdgeKind::kResource}));
}

TEST(CompileTransition, LeavesRoomForWhatRunsBeside) {
  Case c = swap(3);
  ASSERT_TRUE(compile(c, {.host_staging = false}));
  TransitionOptions beside{.host_staging = false};
  for (const int device : {0, 1}) beside.reserved[{0, device}] = c.cluster.device.memory * 0.5;
  EXPECT_FALSE(compile(c, beside));
}

TEST(CompileTransition, MovesLayerByLayerWhereBothSidesDoNotFit) {
  // One unit that turns from tensor to pipeline parallel on its devices: both halves at once need
  // the double, layer by layer one layer more.
  Case c = swap(1);
  ModelUse deep = small_model();
  deep.spec.num_layers = 16;
  c.job = ppo_job(deep);
  c.from.stages = {{kActorTraining, {2, 1}, {{{0, 0}, {0, 1}}}}};
  c.to.stages = {{kActorTraining, {1, 2}, {{{0, 0}, {0, 1}}}}};
  const StateSchema schema = state_schema(deep, kActorTraining);
  const auto least = [&](Layout layout) {
    return std::max(state_bytes(schema, layout, 0), state_bytes(schema, layout, 1));
  };
  const Bytes larger = std::max(least({2, 1}), least({1, 2}));
  c.cluster.device.memory = larger * 1.2;
  const auto dag = compile(c, {.host_staging = false});
  ASSERT_TRUE(dag.has_value()) << dag.error();
  ASSERT_EQ(dag->primitives.size(), 1);
  EXPECT_TRUE(dag->primitives[0].chunked);
  EXPECT_FALSE(compile(c, {.fuse = false, .host_staging = false})) << "a Split needs full copies";
}

TEST(CompileTransition, PredictsFromBytesLinksAndCalibration) {
  const Case c = swap(2);
  const auto dag = compile(c, {.fuse = false});
  const Bytes actor = state_bytes(state_schema(small_model(), kActorTraining), {1, 1}, 0);
  const Primitive& extend = dag->primitives[0];
  EXPECT_EQ(extend.bytes_moved, actor);
  EXPECT_EQ(extend.bytes_resident, Bytes());
  const Seconds ideal =
      c.cluster.in_host.latency + Seconds(double(actor.count()) / c.cluster.in_host.bandwidth);
  EXPECT_DOUBLE_EQ(extend.transfer.count(), ideal.count());
  EXPECT_EQ(extend.predicted, predicted_duration(extend, Slowness(Calibration())));
  Calibration slow;
  slow.observe(OpClass::kTransfer, Seconds(1), Seconds(10));
  EXPECT_GT(predicted_duration(extend, Slowness(slow)), extend.predicted);
  Seconds last;
  for (const Primitive& p : dag->primitives) last = std::max(last, p.start + p.predicted);
  EXPECT_EQ(dag->makespan, last);
}

TEST(CompileTransition, ConnectsOtherHostsFirst) {
  Case c = swap(2);
  c.cluster.hosts.resize(2, c.cluster.hosts.front());
  c.cluster.connecting = Seconds(7);
  c.to = c.from;
  EXPECT_EQ(compile(c)->makespan, Seconds());
  c.to.stages[0].units.push_back({{0, 1}});
  EXPECT_LT(compile(c)->makespan, Seconds(7));
  c.to.stages[0].units.push_back({{1, 0}});
  EXPECT_EQ(compile(c)->connecting, Seconds(7));
  EXPECT_GT(compile(c)->makespan, Seconds(7));
  EXPECT_GE(compile(c)->primitives.front().start, Seconds(7));
}

TEST(CompileTransition, IndependentReplicasMoveAtOnceAndOnesOnADeviceInTurn) {
  Case c = swap(2);
  c.cluster = cpu_cluster(4, c.cluster.device.memory, 4);
  c.from = {{{kActorTraining, {1, 1}, {{{0, 0}}}}, {kCriticTraining, {1, 1}, {{{0, 2}}}}}};
  c.to = {{{kActorTraining, {1, 1}, {{{0, 0}}, {{0, 1}}}},
           {kCriticTraining, {1, 1}, {{{0, 2}}, {{0, 3}}}}}};
  const auto apart = compile(c);
  EXPECT_EQ(apart->primitives[1].start, Seconds());
  c.to.stages[1].units[1] = {{0, 1}};
  const auto shared = compile(c);
  EXPECT_EQ(shared->primitives[1].start, shared->primitives[0].predicted);
}

TEST(CompileTransition, RefusesPlansOfDifferentModelStages) {
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
