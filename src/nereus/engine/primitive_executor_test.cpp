#include "nereus/engine/primitive_executor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "nereus/base/error.h"
#include "nereus/data/hf_model.h"

namespace nereus {
namespace {

// Four heads over two KV heads, three uneven layers, tied embeddings, a vocabulary that 4 does not
// divide.
const ModelSpec kModel{.model_type = "qwen3",
                       .vocab_size = 19,
                       .hidden_size = 16,
                       .intermediate_size = 24,
                       .num_layers = 3,
                       .num_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 4,
                       .tie_word_embeddings = true,
                       .qk_norm = true};

constexpr ModelStage kTraining{Role::kActor, Stage::kTraining};
constexpr ModelStage kGeneration{Role::kActor, Stage::kGeneration};

JobSpec job() {
  JobSpec job;
  job.workflow = ppo_workflow(/*with_reference=*/false);
  job.models[Role::kActor] = {kModel, DType::kBFloat16};
  job.models[Role::kCritic] = {as_critic(kModel), DType::kFloat32};
  job.workload = {
      .samples = 8, .prompt_tokens = 4, .response_mean = 4, .response_limit = 4, .mini_batch = 8};
  return job;
}

// Any layout of the actor on any of `devices` virtual devices, in any order.
Plan random_plan(const JobSpec& job, int devices) {
  Plan plan;
  for (const ModelStage model_stage : model_stages(job.workflow)) {
    const Layout layout = *rc::gen::element(Layout{1, 1}, Layout{2, 1}, Layout{4, 1}, Layout{1, 2},
                                            Layout{2, 2}, Layout{1, 3});
    std::vector<DeviceId> order = all_devices(cpu_cluster(devices, Bytes(1), 1)).devices();
    const auto shuffle = *rc::gen::container<std::vector<uint32_t>>(
        order.size(), rc::gen::inRange<uint32_t>(0, 1000));
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[shuffle[i] % (i + 1)]);
    const int most = devices / layout.devices();
    const int dp = *rc::gen::inRange(1, most + 1);
    StagePlan stage{model_stage, layout, {}, 1, false, false};
    for (int unit = 0; unit < dp; ++unit) {
      const auto begin = order.begin() + unit * layout.devices();
      stage.units.emplace_back(begin, begin + layout.devices());
    }
    plan.stages.push_back(stage);
  }
  return plan;
}

class Bench {
 public:
  explicit Bench(int devices)
      : job_(job()),
        cluster_(cpu_cluster(devices, Bytes(int64_t{1} << 28), 2)),
        workers_(all_devices(cluster_), "cpu", cluster_.device.memory),
        store_(workers_) {}

  StateSchema schema(ModelStage model_stage) const {
    return state_schema(job_.models.at(model_stage.role), model_stage);
  }

  // Random state under a plan, equal in all replicas.
  void fill(const Plan& plan) {
    for (const StagePlan& stage : plan.stages) {
      std::map<StateKind, TensorMap> state;
      for (const StateComponent& component : schema(stage.model_stage).components) {
        for (const TensorSpec& tensor : schema(stage.model_stage).tensors) {
          state[component.kind][tensor.name] =
              at::randn(tensor.shape, at::dtype(scalar_type(component.dtype)));
        }
      }
      for (const Emu& unit : units_of(stage)) {
        store_.create(unit, schema(stage.model_stage));
        for (const auto& [kind, tensors] : state) store_.scatter(unit, kind, tensors);
        for (const DeviceId device : unit.devices) store_.at(unit, device).updates = 17;
      }
    }
  }

  Expected<TransitionDag> compile(const Plan& from, const Plan& to) const {
    return compile_transition(from, to, job_, cluster_, Calibration());
  }
  TransitionReport run(const TransitionDag& dag) {
    return execute(dag, store_, [this](ModelStage stage) { return schema(stage); }, true);
  }
  StateStore& store() { return store_; }
  const JobSpec& spec() const { return job_; }

 private:
  JobSpec job_;
  Cluster cluster_;
  WorkerPool workers_;
  StateStore store_;
};

TEST(Execute, KeepsEveryBitUnderRandomTransitions) {
  EXPECT_TRUE(rc::check("random plans on 4 to 6 devices", [] {
    const int devices = *rc::gen::inRange(4, 7);
    Bench bench(devices);
    const Plan from = random_plan(bench.spec(), devices);
    const Plan to = random_plan(bench.spec(), devices);
    bench.fill(from);
    const auto dag = bench.compile(from, to);
    RC_ASSERT(dag.has_value());
    const TransitionReport report = bench.run(*dag);  // throws if a hash differs
    RC_ASSERT(report.verified);
    RC_ASSERT(report.primitives.size() == dag->primitives.size());
    for (const StagePlan& stage : to.stages) {
      for (const Emu& unit : units_of(stage)) {
        RC_ASSERT(bench.store().contains(unit));
        RC_ASSERT(bench.store().at(unit, unit.devices.back()).updates == 17);
      }
    }
    for (const Primitive& primitive : dag->primitives) {
      if (!consumes_sources(primitive.kind)) continue;
      for (const Emu& source : primitive.sources) {
        const auto still = units_of(at(to, source.model_stage));
        if (std::ranges::find(still, source) == still.end()) {
          RC_ASSERT(!bench.store().contains(source));
        }
      }
    }
  }));
}

TEST(Execute, FindsAFlippedBit) {
  Bench bench(2);
  Plan from;
  Plan to;
  for (const ModelStage model_stage : model_stages(bench.spec().workflow)) {
    from.stages.push_back({model_stage, {1, 1}, {{{0, 0}}, {{0, 1}}}});
    to.stages.push_back({model_stage, {2, 1}, {{{0, 0}, {0, 1}}}});
  }
  bench.fill(from);
  const auto dag = bench.compile(from, to);
  ASSERT_TRUE(dag) << dag.error();
  const Emu replica = units_of(at(from, kTraining)).back();
  at::Tensor(bench.store().at(replica, {0, 1}).arenas(StateKind::kExpAvg)[0])[3] += 1;
  try {
    bench.run(*dag);
    FAIL() << "replicas that differ were accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("exp_avg/"), std::string::npos) << error.what();
  }
}

TEST(UnitState, AliasesShareTheBytes) {
  Bench bench(1);
  Plan plan;
  for (const ModelStage model_stage : model_stages(bench.spec().workflow)) {
    plan.stages.push_back({model_stage, {1, 1}, {{{0, 0}}}});
  }
  bench.fill(plan);
  const Emu training = units_of(at(plan, kTraining)).front();
  const Emu generation = units_of(at(plan, kGeneration)).front();
  const UnitState& owner = bench.store().at(training, {0, 0});
  bench.store().replace(generation, {0, 0}, UnitState::alias_weights(generation, owner));
  const UnitState& alias = bench.store().at(generation, {0, 0});
  EXPECT_EQ(alias.tensor(0, StateKind::kWeights).const_data_ptr(),
            owner.tensor(0, StateKind::kWeights).const_data_ptr());
  EXPECT_TRUE(alias.arenas(StateKind::kMaster).empty());
}

}  // namespace
}  // namespace nereus
