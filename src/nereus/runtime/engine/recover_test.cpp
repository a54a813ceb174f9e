#include <gtest/gtest.h>

#include "nereus/runtime/engine/testing.h"

namespace nereus {
namespace {

using testing::cases;
using testing::random_case;
using testing::region;
using testing::tightened;
using testing::TransitionCase;
using testing::VirtualDevices;

using EventCounts = std::map<DeviceId, int>;

// Throws what `make_error` makes when `device` meets its event number `event`; counts events.
class Fault {
 public:
  Fault(const WorkerPool& workers, DeviceId device, int event, std::function<void()> strike)
      : device_(device), event_(event), strike_(std::move(strike)) {
    for (const DeviceId id : workers.devices()) counts_[id] = 0;
  }
  void operator()(const TransitionEvent& event) {
    const int number = counts_.at(event.device)++;  // only its own thread comes here
    if (event.device == device_ && number == event_) strike_();
  }
  const EventCounts& counts() const { return counts_; }

 private:
  DeviceId device_;
  int event_;
  std::function<void()> strike_;
  EventCounts counts_;
};

// Whether some valid chunk of some unit holds each element of the model-stage, element by element.
bool is_complete(const VirtualDevices& devices, const StateStore& store, ModelStage model_stage) {
  const StateSchema schema = devices.schema(model_stage);
  for (const StateComponent& component : schema.components) {
    std::vector<at::Tensor> missing;
    for (const TensorSpec& tensor : schema.tensors) {
      missing.push_back(at::ones(tensor.shape, at::kBool));
    }
    for (const Emu& unit : store.units()) {
      if (unit.model_stage != model_stage) continue;
      for (const DeviceId device : unit.devices) {
        const UnitState* state = store.find(unit, device);
        if (state == nullptr) continue;
        for (size_t i = 0; i < schema.tensors.size(); ++i) {
          const auto& box = state->box(static_cast<int>(i), component.kind);
          const int chunk = chunk_of(schema.tensors[i], schema.num_layers);
          if (!box || state->chunk(chunk) != ChunkState::kValid) continue;
          region(missing[i], *box).fill_(false);
        }
      }
    }
    for (const at::Tensor& tensor : missing) {
      if (tensor.any().item<bool>()) return false;
    }
  }
  return true;
}

// The units of a plan that do not need `lost`; one device that is left where there are none.
Plan plan_without(Plan plan, const Cluster& cluster, const std::vector<DeviceId>& lost) {
  const auto is_lost = [&](DeviceId device) {
    return std::ranges::find(lost, device) != lost.end();
  };
  std::vector<DeviceId> left = all_devices(cluster).devices();
  std::erase_if(left, is_lost);
  size_t next = 0;
  for (StagePlan& stage : plan.stages) {
    std::erase_if(stage.units,
                  [&](const auto& unit) { return std::ranges::any_of(unit, is_lost); });
    if (stage.units.empty()) {
      stage.layout = {};
      stage.units = {{left[next++ % left.size()]}};
    }
  }
  return plan;
}

bool is_replicated(const Plan& plan) {
  return std::ranges::all_of(plan.stages,
                             [](const StagePlan& stage) { return stage.units.size() > 1; });
}

struct Outcome {
  int recovered = 0;
  int lost = 0;
};

// Lets the fault happen, looks at what is left, recovers.
void strike(const TransitionCase& c, const TransitionDag& dag, const StageHashes& before,
            DeviceId device, int event, bool dies, Outcome& outcome) {
  VirtualDevices devices(c.job, c.cluster);
  devices.fill(c.from);
  Fault fault(devices.workers(), device, event, [&] {
    if (dies) throw DeviceLost(device);
    throw Error(ErrorCode::kOutOfMemory, "no memory on " + to_string(device));
  });
  const TransitionReport report = devices.run(dag, {.verify = false, .on_event = std::ref(fault)});
  ASSERT_TRUE(report.failure);
  ASSERT_NE(report.failure->reason.find(to_string(device)), std::string::npos);
  ASSERT_EQ(report.failure->lost, dies ? std::vector{device} : std::vector<DeviceId>());

  std::vector<ModelStage> broken;
  for (const StagePlan& stage : c.from.stages) {
    if (!is_complete(devices, devices.store(), stage.model_stage))
      broken.push_back(stage.model_stage);
  }
  ASSERT_TRUE(dies || broken.empty()) << "without any device lost";
  const Plan to = plan_without(c.to, c.cluster, report.failure->lost);
  const auto recovered = recover(to, devices.store(), devices.schemas(), {.expected = before});
  ASSERT_EQ(recovered.has_value(), broken.empty()) << (recovered ? "" : recovered.error());
  if (!broken.empty()) {
    ++outcome.lost;
    for (const ModelStage model_stage : broken) {
      ASSERT_NE(recovered.error().find(to_string(model_stage)), std::string::npos);
    }
    return;
  }
  ++outcome.recovered;
  ASSERT_FALSE(recovered->failure) << recovered->failure->reason;
  ASSERT_TRUE(recovered->verified);
  ASSERT_EQ(devices.problem_with(to), "");
}

TEST(Recover, LosesNothingOfWhichACopySurvives) {
  const int count = cases("NEREUS_FAULT_DAGS", 3);
  Outcome deaths;
  Outcome failures;
  for (int seed = 0, tried = 0; tried < count; ++seed) {
    TransitionCase c = random_case(static_cast<uint64_t>(seed), 2 + seed % 7, 4);
    if (tried % 3 != 0 && !(is_replicated(c.from) && is_replicated(c.to))) continue;
    const bool tight = tried % 4 == 3;
    if (tight) c.cluster = tightened(c, 0.3);
    const auto dag =
        compile_transition(c.from, c.to, c.job, c.cluster, Calibration(), {.fuse = seed % 2 == 0});
    if (!dag && tight) continue;
    ASSERT_TRUE(dag) << dag.error();
    if (dag->empty()) continue;
    ++tried;
    VirtualDevices devices(c.job, c.cluster);
    devices.fill(c.from);
    const StageHashes before = hash_stages(c.from, devices.store(), devices.workers());
    Fault nothing(devices.workers(), {}, -1, [] {});
    devices.run(*dag, {.on_event = std::ref(nothing)});
    for (const auto& [device, events] : nothing.counts()) {
      for (int event = 0; event < events; ++event) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", event " + std::to_string(event) + " of " +
                     to_string(device));
        strike(c, *dag, before, device, event, /*dies=*/true, deaths);
        if (event % 3 == 0) strike(c, *dag, before, device, event, /*dies=*/false, failures);
        if (HasFatalFailure()) return;
      }
    }
  }
  std::cout << deaths.recovered + deaths.lost << " deaths: " << deaths.recovered << " recovered, "
            << deaths.lost << " took a last copy along; " << failures.recovered
            << " other failures recovered\n";
  EXPECT_GT(deaths.recovered, 0);
  EXPECT_GT(deaths.lost, 0);
  EXPECT_EQ(failures.lost, 0);
}

// An allocation that truly exceeds the budget, because somebody else took the memory.
TEST(Recover, GoesBackWhenAnAllocationFails) {
  TransitionCase c = random_case(3, 2, 2);
  for (StagePlan& stage : c.from.stages) stage = {stage.model_stage, {1, 1}, {{{0, 0}}}};
  for (StagePlan& stage : c.to.stages) stage = {stage.model_stage, {1, 1}, {{{0, 1}}}};
  c.cluster.device.memory = Bytes(int64_t{1} << 20);
  const auto dag = compile_transition(c.from, c.to, c.job, c.cluster, Calibration());
  ASSERT_TRUE(dag) << dag.error();
  VirtualDevices devices(c.job, c.cluster);
  if (!devices.memory_is_exact()) GTEST_SKIP();
  devices.fill(c.from);
  const StageHashes before = hash_stages(c.from, devices.store(), devices.workers());
  const DeviceMemory memory = devices.workers().at({0, 1}).memory();
  at::Tensor ballast;
  const TransitionReport report = devices.run(*dag, {.on_event = [&](const TransitionEvent& event) {
    if (event.device != DeviceId{0, 1} || ballast.defined()) return;
    const Bytes free = memory.budget() - memory.current();
    ballast = at::empty({free.count() - 100}, at::kByte);
  }});
  ASSERT_TRUE(report.failure);
  EXPECT_NE(report.failure->reason.find("device 0:1: out of memory"), std::string::npos);
  EXPECT_TRUE(report.failure->lost.empty());
  ballast.reset();
  const auto recovered = recover(c.from, devices.store(), devices.schemas(), {.expected = before});
  ASSERT_TRUE(recovered) << recovered.error();
  EXPECT_TRUE(recovered->verified);
  EXPECT_EQ(devices.problem_with(c.from), "");
}

}  // namespace
}  // namespace nereus
