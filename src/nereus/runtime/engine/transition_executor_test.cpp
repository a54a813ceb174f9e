#include "nereus/runtime/engine/transition_executor.h"

#include <gtest/gtest.h>

#include <barrier>
#include <future>

#include "nereus/runtime/engine/testing.h"

namespace nereus {
namespace {

using testing::cases;
using testing::random_case;
using testing::tightened;
using testing::TransitionCase;
using testing::VirtualDevices;

Expected<TransitionDag> compile(const TransitionCase& c, const TransitionOptions& options = {}) {
  return compile_transition(c.from, c.to, c.job, c.cluster, Calibration(), options);
}

struct Tally {
  int transitions = 0;
  int refused = 0;
  int chunked = 0;
  int staged = 0;
  int routes = 0;
};

void run_and_check(const TransitionCase& c, const TransitionOptions& options, Tally& tally) {
  const auto dag = compile(c, options);
  if (!dag) {
    ++tally.refused;
    return;
  }
  VirtualDevices devices(c.job, c.cluster);
  devices.fill(c.from);
  const TransitionReport report = devices.run(*dag);
  ASSERT_FALSE(report.failure) << report.failure->reason;
  EXPECT_TRUE(report.verified || dag->empty());
  ASSERT_EQ(report.primitives.size(), dag->primitives.size());
  ASSERT_EQ(devices.problem_with(c.to), "");
  EXPECT_TRUE(!report.peak_bytes.empty() || dag->empty());
  for (const auto& [device, peak] : report.peak_bytes) {
    if (!devices.memory_is_exact()) break;
    const auto predicted = dag->peak_bytes.find(device);
    if (predicted == dag->peak_bytes.end()) {
      EXPECT_EQ(peak, devices.workers().at(device).memory().current()) << to_string(device);
    } else {
      EXPECT_LE(peak, predicted->second) << to_string(device);
    }
  }
  ++tally.transitions;
  for (const Primitive& primitive : dag->primitives) {
    EXPECT_EQ(report.primitives[primitive.id].moved, primitive.bytes_moved);
    tally.chunked += primitive.chunked ? 1 : 0;
    tally.routes += primitive.kind == PrimitiveKind::kRoute ? 1 : 0;
    const DevicePool touched = devices_of(primitive, dag->units);
    tally.staged += std::ranges::any_of(touched.devices(), is_host_memory) ? 1 : 0;
  }
}

TEST(Execute, KeepsEveryBitAndStaysBelowThePredictedPeak) {
  Tally tally;
  const int count = cases("NEREUS_TRANSITION_CASES", 40);
  for (int seed = 0; seed < count; ++seed) {
    const int devices = 2 + seed * 7 % 15;
    TransitionCase c = random_case(static_cast<uint64_t>(seed), devices, 4);
    if (seed % 2 == 1) c.cluster = tightened(c, seed % 10 / 10.0);
    for (const bool fuse : {true, false}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (fuse ? " fused" : " unfused"));
      run_and_check(c, {.fuse = fuse}, tally);
      if (HasFatalFailure()) return;
    }
  }
  std::cout << tally.transitions << " transitions, " << tally.refused
            << " refused; primitives: " << tally.routes << " routes, " << tally.chunked
            << " chunked, " << tally.staged << " through host memory\n";
  EXPECT_GT(tally.transitions, count);
  EXPECT_GT(tally.routes, 0);
  if (count < 20) return;  // few cases need not meet everything
  EXPECT_GT(tally.chunked, 0);
  EXPECT_GT(tally.staged, 0);
}

// Two replicas become one unit, every model-stage alike.
TransitionCase two_to_one() {
  TransitionCase c = random_case(3, 2, 2);
  for (StagePlan& stage : c.from.stages) stage = {stage.model_stage, {1, 1}, {{{0, 0}}, {{0, 1}}}};
  for (StagePlan& stage : c.to.stages) stage = {stage.model_stage, {1, 1}, {{{0, 1}}}};
  return c;
}

TEST(Execute, FindsAFlippedBit) {
  const TransitionCase c = two_to_one();
  const auto dag = compile(c);
  ASSERT_TRUE(dag) << dag.error();
  VirtualDevices devices(c.job, c.cluster);
  devices.fill(c.from);
  const Emu replica = units_of(at(c.from, kActorTraining)).back();
  devices.store().at(replica, {0, 1}).arenas(StateKind::kExpAvg)[0][3] += 1;
  try {
    devices.run(*dag);
    FAIL() << "replicas that differ were accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("exp_avg/"), std::string::npos) << error.what();
  }
}

// Each device moves one model-stage to another device: disjoint pairs.
TransitionCase two_extends() {
  TransitionCase c = random_case(3, 4, 4);
  for (StagePlan& stage : c.from.stages) {
    const int device = stage.model_stage == kActorTraining ? 2 : 0;
    stage = {stage.model_stage, {1, 1}, {{{0, device}}}};
  }
  c.to = c.from;
  for (StagePlan& stage : c.to.stages) {
    if (stage.model_stage == kActorTraining) stage.units.push_back({{0, 3}});
    if (stage.model_stage == kActorGeneration) stage.units.push_back({{0, 1}});
  }
  return c;
}

TEST(Execute, RunsIndependentPrimitivesAtOnce) {
  const TransitionCase c = two_extends();
  const auto dag = compile(c);
  ASSERT_TRUE(dag) << dag.error();
  ASSERT_EQ(dag->primitives.size(), 2U);
  VirtualDevices devices(c.job, c.cluster);
  devices.fill(c.from);
  std::barrier both(2);
  ExecuteOptions options;
  options.on_event = [&](const TransitionEvent& event) {
    if (event.what == TransitionEvent::What::kStarted) both.arrive_and_wait();
  };
  EXPECT_TRUE(devices.run(*dag, options).verified);
  EXPECT_EQ(devices.problem_with(c.to), "");
}

TEST(Execute, RunsBesideBusyWorkersAndOnSlowLinks) {
  const TransitionCase c = two_extends();
  const auto dag = compile(c);
  ASSERT_TRUE(dag) << dag.error();
  VirtualDevices devices(c.job, c.cluster);
  devices.fill(c.from);
  const WorkerPool second = devices.workers().beside();
  std::promise<void> finished;
  const std::shared_future<void> pass = finished.get_future().share();
  for (const DeviceId device : devices.workers().devices()) {
    devices.workers().at(device).post([pass] { pass.wait(); });
  }
  const ExecuteOptions options{.workers = &second, .link_bandwidth = 1e6};
  const TransitionReport report = devices.run(*dag, options);
  finished.set_value();
  EXPECT_TRUE(report.verified);
  for (const PrimitiveReport& primitive : report.primitives) {
    EXPECT_GT(primitive.moved, Bytes());
    EXPECT_GE(primitive.measured.count(), static_cast<double>(primitive.moved.count()) / 1e6);
  }
  EXPECT_EQ(devices.problem_with(c.to), "");
}

TEST(UnitState, AliasesShareTheBytes) {
  TransitionCase c = two_to_one();
  VirtualDevices devices(c.job, c.cluster);
  devices.fill(c.to);
  const Emu training = units_of(at(c.to, kActorTraining)).front();
  const Emu generation = units_of(at(c.to, kActorGeneration)).front();
  const UnitState& owner = devices.store().at(training, {0, 1});
  devices.store().replace(generation, {0, 1}, UnitState::alias_weights(generation, owner));
  const UnitState& alias = devices.store().at(generation, {0, 1});
  const void* bytes = owner.tensor(0, StateKind::kWeights).const_data_ptr();
  EXPECT_EQ(alias.tensor(0, StateKind::kWeights).const_data_ptr(), bytes);
  EXPECT_TRUE(alias.arenas(StateKind::kExpAvg).empty());
  devices.store().destroy(training);
  EXPECT_EQ(alias.tensor(0, StateKind::kWeights).const_data_ptr(), bytes) << "they live on";
}

}  // namespace
}  // namespace nereus
