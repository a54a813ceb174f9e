#include "nereus/cost/step_latency.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "nereus/cost/collectives.h"
#include "nereus/cost/shape.h"
#include "nereus/cost/test_job.h"

namespace nereus {
namespace {

const WorkflowNode& node_of(const JobSpec& job, Pass pass, Role role) {
  for (const WorkflowNode& node : job.workflow.nodes) {
    if (node.pass == pass && node.runs_on.role == role) return node;
  }
  throw std::logic_error("no such node");
}

double ideal(const JobSpec& job, const Plan& plan, const Cluster& cluster, Pass pass,
             OpClass op_class) {
  const ClassTimes times = ideal_node_times(node_of(job, pass, Role::kActor), plan, job, cluster);
  const auto time = times.find(op_class);
  return time == times.end() ? 0 : time->second.count();
}

TEST(Collectives, RingFormulas) {
  const LinkSpec link{.bandwidth = 100, .latency = Seconds(1)};
  EXPECT_DOUBLE_EQ(all_reduce_time(400, 4, link).count(), 6 + 6);
  EXPECT_DOUBLE_EQ(all_gather_time(400, 4, link).count(), 3 + 3);
  EXPECT_DOUBLE_EQ(all_reduce_time(400, 1, link).count(), 0);
  EXPECT_DOUBLE_EQ(send_time(400, link).count(), 5);
}

TEST(Latency, LargeModelsApproachSixFlopsPerParameterAndToken) {
  const JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 1);
  const Plan plan = uniform_plan(job, {1, 1}, 8, 16);
  const double tokens = 512 / 8 * (512 + 1024.0);
  const double dense = 32.0 * double(block_parameters(job.model(Role::kActor)));
  const double expected = 6 * dense * tokens / cluster.device.flops;
  EXPECT_NEAR(ideal(job, plan, cluster, Pass::kTrain, OpClass::kCompute) / expected, 1.1, 0.1);
}

TEST(Latency, RecomputationCostsOneMoreForward) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 4);
  const auto compute = [&](bool recompute) {
    return ideal(job, uniform_plan(job, {2, 1}, 2, 8, recompute), cluster, Pass::kTrain,
                 OpClass::kCompute);
  };
  EXPECT_NEAR(compute(true) / compute(false), 4.0 / 3, 1e-9);
}

TEST(Latency, PipelineBubbleIsCompute) {
  const JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 1);
  // Four stages of eight blocks: m micro-batches take (m + 3) / m of a quarter of the work.
  const auto compute = [&](Layout layout, int micro_batch) {
    return ideal(job, uniform_plan(job, layout, 1, micro_batch), cluster, Pass::kTrain,
                 OpClass::kCompute);
  };
  const double ratio = compute({1, 4}, 32) / compute({1, 1}, 32);
  EXPECT_NEAR(ratio, (4 + 3) / 4.0 / 4, 0.06);
}

TEST(Latency, DevicesThatShareCoresAreSlower) {
  const JobSpec job = stories_job();
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  const auto compute = [&](int cores) {
    return ideal(job, plan, cpu_cluster(4, Bytes(1 << 30), cores), Pass::kTrain, OpClass::kCompute);
  };
  EXPECT_DOUBLE_EQ(compute(2), 2 * compute(4));
}

TEST(Latency, SyncIsFreeWhereWeightsAreShared) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 2);
  Plan plan = uniform_plan(job, {2, 1}, 2, 8);
  EXPECT_EQ(ideal(job, plan, cluster, Pass::kSyncWeights, OpClass::kTransfer), 0);
  plan.stages.front() = stage_on_host({Role::kActor, Stage::kGeneration}, {1, 1}, 4, 8);
  EXPECT_GT(ideal(job, plan, cluster, Pass::kSyncWeights, OpClass::kTransfer), 0);
}

TEST(Latency, EveryClassThatAppliesIsThereAndNoOther) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(8, Bytes(1 << 30), 8);
  const auto has = [&](Layout layout, int dp, Pass pass, OpClass op_class) {
    return ideal(job, uniform_plan(job, layout, dp, 8), cluster, pass, op_class) > 0;
  };
  EXPECT_TRUE(has({2, 1}, 1, Pass::kTrain, OpClass::kTensorComm));
  EXPECT_FALSE(has({1, 2}, 1, Pass::kTrain, OpClass::kTensorComm));
  EXPECT_TRUE(has({1, 2}, 1, Pass::kTrain, OpClass::kPipelineComm));
  EXPECT_FALSE(has({2, 1}, 1, Pass::kTrain, OpClass::kPipelineComm));
  EXPECT_TRUE(has({1, 1}, 2, Pass::kTrain, OpClass::kGradientComm));
  EXPECT_FALSE(has({1, 1}, 1, Pass::kTrain, OpClass::kGradientComm));
  EXPECT_TRUE(has({1, 1}, 1, Pass::kGenerate, OpClass::kDecode));
  EXPECT_FALSE(has({1, 1}, 1, Pass::kGenerate, OpClass::kCompute));
}

TEST(Latency, LongerIsNeverFaster) {
  EXPECT_TRUE(rc::check("monotone in length", [] {
    const Layout layout{*rc::gen::element(1, 2, 4), *rc::gen::element(1, 2)};
    const int64_t response = *rc::gen::inRange(8, 512);
    const Cluster cluster = cpu_cluster(8, Bytes(1 << 30), 2);
    const JobSpec job = stories_job(response);
    const Plan plan = uniform_plan(job, layout, *rc::gen::inRange(1, 2), 8);
    RC_ASSERT(predict_step(plan, stories_job(response + 1), cluster, {}).total >
              predict_step(plan, job, cluster, {}).total);
  }));
}

TEST(Latency, EfficiencyOfOneClassScalesThatClassOnly) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 2);
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  Calibration calibration;
  calibration.observe(OpClass::kDecode, Seconds(default_efficiency(OpClass::kDecode)), Seconds(2));
  const StepLatency before = predict_step(plan, job, cluster, {});
  const StepLatency after = predict_step(plan, job, cluster, calibration);
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    const double factor = before.nodes[i].name == "gen" ? 2 : 1;
    EXPECT_NEAR(after.nodes[i].predicted.count(), factor * before.nodes[i].predicted.count(),
                1e-12);
  }
}

// gen → two passes → train: the passes overlap iff their devices differ.
TEST(CriticalPath, SharedDevicesSerialise) {
  Workflow workflow;
  workflow.nodes = {{"gen"}, {"left"}, {"right"}, {"train"}};
  workflow.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  const std::vector<Seconds> times = {Seconds(1), Seconds(2), Seconds(3), Seconds(4)};
  const DeviceId a{0, 0}, b{0, 1};
  const std::vector<std::vector<DeviceId>> shared = {{a, b}, {a}, {a}, {a, b}};
  const std::vector<std::vector<DeviceId>> apart = {{a, b}, {a}, {b}, {a, b}};
  const std::vector<std::vector<DeviceId>> host = {{a, b}, {a}, {}, {a, b}};
  EXPECT_DOUBLE_EQ(critical_path(workflow, times, shared).count(), 10);
  EXPECT_DOUBLE_EQ(critical_path(workflow, times, apart).count(), 8);
  EXPECT_DOUBLE_EQ(critical_path(workflow, times, host).count(), 8);
}

}  // namespace
}  // namespace nereus
