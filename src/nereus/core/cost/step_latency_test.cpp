#include "nereus/core/cost/step_latency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "nereus/core/cost/shape.h"
#include "nereus/core/cost/test_job.h"

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

Work work_of(const JobSpec& job, const Plan& plan, const Cluster& cluster, Pass pass) {
  return ideal_node_work(node_of(job, pass, Role::kActor), plan, job, cluster);
}

TEST(Latency, LargeModelsNeedSixFlopsPerParameterAndToken) {
  const JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 1);
  const Plan plan = uniform_plan(job, {1, 1}, 8, 16);
  const ModelSpec& spec = job.model(Role::kActor);
  const double dense =
      32.0 * double(block_parameters(spec)) * (512 + 1024.0) + double(head_parameters(spec)) * 1024;
  const Work work = work_of(job, plan, cluster, Pass::kTrain);
  const Operations& compute = work.at(OpClass::kCompute);
  EXPECT_NEAR(compute[OpClass::kGemm] / (6 * dense * 512 / 8 / cluster.device.flops), 1, 1e-9);
  // Reading, normalisation and the like are the smaller part of it.
  EXPECT_LT(compute.sum(), 1.4 * compute[OpClass::kGemm]);
}

TEST(Latency, DecodeStepsAreLinearInTheBatch) {
  const Cluster cluster = named_cluster("h200x8", 1);
  const auto decode = [&](int64_t samples) {
    JobSpec job = large_job();
    job.workload.samples = samples;
    return work_of(job, uniform_plan(job, {1, 1}, 8, 1), cluster, Pass::kGenerate)
        .at(OpClass::kDecode)
        .sum();
  };
  EXPECT_NEAR(decode(8 * 300) - decode(8 * 200), decode(8 * 200) - decode(8 * 100), 1e-9);
  // A batch of one reads all weights for each of its 1024 tokens.
  const double weights = 1024 * 2 * 7.5e9 / cluster.device.memory_bandwidth;
  EXPECT_GT(decode(8), weights);
  EXPECT_LT(decode(8), 3 * weights);
}

// No ideal time is longer than what was measured on an H200: steps of 64 and of 256 sequences of
// 512 and 128 tokens (bench/results/h200x1/generation_vllm.json), which replay a recorded graph.
// Virtual CPU devices launch each operator.
TEST(Latency, GraphsMakeDecodeStepsNearlyAsShortAsTheirReading) {
  const auto step = [](int64_t sequences, bool cpu) {
    Cluster cluster = named_cluster("h200x8", 1);
    if (cpu) cluster.device.kind = "cpu";
    const auto decode = [&](int64_t response) {
      JobSpec job = large_job(response);
      job.workload.samples = sequences;
      return work_of(job, uniform_plan(job, {1, 1}, 1, 1), cluster, Pass::kGenerate)
          .at(OpClass::kDecode);
    };
    return (decode(128) + decode(1) * -1) * (1.0 / 127);
  };
  EXPECT_LT(step(64, false).sum(), 6.01e-3);
  EXPECT_GT(step(64, false).sum(), 0.7 * 6.01e-3);
  EXPECT_LT(step(256, false).sum(), 12.03e-3);
  EXPECT_GT(step(256, false).sum(), 0.6 * 12.03e-3);
  EXPECT_NEAR(step(64, true)[OpClass::kLaunch] / step(64, false)[OpClass::kLaunch], 20, 1e-6);
}

TEST(Latency, ThePromptOfSeveralResponsesIsComputedOnce) {
  const Cluster cluster = named_cluster("h200x8", 1);
  JobSpec job = large_job(1);  // next to nothing but prompts
  const Plan plan = uniform_plan(job, {1, 1}, 4, 1);
  const auto products = [&](int64_t responses) {
    job.workload.samples_per_prompt = responses;
    return work_of(job, plan, cluster, Pass::kGenerate).at(OpClass::kDecode)[OpClass::kGemm];
  };
  EXPECT_NEAR(products(8) / products(1), 1.0 / 8, 0.03);
}

TEST(Latency, TheLongestResponseEndsGeneration) {
  const Cluster cluster = named_cluster("h200x8", 1);
  JobSpec equal = large_job(512);
  JobSpec tailed = large_job(512);
  tailed.workload.response_limit = 4096;
  const Plan plan = uniform_plan(equal, {1, 1}, 8, 1);
  const auto reading = [&](const JobSpec& job) {
    return work_of(job, plan, cluster, Pass::kGenerate).at(OpClass::kDecode)[OpClass::kOperands];
  };
  // 64 exponential lengths: the longest is about ln(128) times the mean.
  EXPECT_NEAR(reading(tailed) / reading(equal), std::log(128), 0.2);
}

TEST(Latency, EveryWaveReadsTheWeights) {
  const Cluster cluster = named_cluster("h200x8", 1);
  JobSpec job = large_job(512);
  job.workload.response_mean = double(job.workload.response_limit);  // as many steps in each wave
  Plan plan = uniform_plan(job, {1, 1}, 8, 1);
  const auto decode = [&](int waves) {
    plan.stages.front().waves = waves;
    return work_of(job, plan, cluster, Pass::kGenerate).at(OpClass::kDecode);
  };
  EXPECT_NEAR(decode(4)[OpClass::kOperands] / decode(1)[OpClass::kOperands], 4, 0.1);
  EXPECT_NEAR(decode(4)[OpClass::kCache] / decode(1)[OpClass::kCache], 1, 1e-6);
}

TEST(Latency, SmallBatchesReadFewExperts) {
  ModelSpec spec = stories_spec();
  spec.model_type = "qwen3_moe";
  spec.num_experts = 64;
  spec.experts_per_token = 2;
  spec.moe_intermediate_size = 44;
  JobSpec job = stories_job();
  job.models[Role::kActor].spec = spec;
  const Cluster cluster = named_cluster("h200x8", 1);
  const auto reading = [&](int64_t samples) {
    job.workload.samples = samples;
    return work_of(job, uniform_plan(job, {1, 1}, 1, 1), cluster, Pass::kGenerate)
        .at(OpClass::kDecode)[OpClass::kOperands];
  };
  EXPECT_GT(reading(8), 2 * reading(1));
  EXPECT_LT(reading(512), 2 * reading(64));  // all of them already
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

// Of the block's products, that of the intermediate width with the hidden one is a quarter or so.
TEST(Latency, RecomputationNeedNotRepeatWhatBackwardDoesNotRead) {
  JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 1);
  const Plan plan = uniform_plan(job, {2, 1}, 2, 8, /*recompute=*/true);
  const auto times = [&](OpClass op_class) {
    return ideal(job, plan, cluster, Pass::kTrain, op_class);
  };
  const double compute = times(OpClass::kCompute);
  const double tensor_comm = times(OpClass::kTensorComm);
  job.execution.recomputes_only_what_is_read = true;
  const ModelSpec& spec = job.model(Role::kActor);
  const double down =
      double(spec.hidden_size * spec.intermediate_size) / double(block_parameters(spec));
  EXPECT_GT(times(OpClass::kCompute) / compute, 1 - (down + 0.1) / 4);
  EXPECT_LT(times(OpClass::kCompute) / compute, 1 - (down - 0.05) / 4);
  EXPECT_NEAR(times(OpClass::kTensorComm) / tensor_comm, 5.0 / 6, 1e-9);
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
  JobSpec interleaved = job;
  interleaved.execution.pipeline_chunks = 4;
  const double fewer = ideal(interleaved, uniform_plan(job, {1, 4}, 1, 32), cluster, Pass::kTrain,
                             OpClass::kCompute) /
                       compute({1, 1}, 32);
  EXPECT_NEAR(fewer, (4 + 3 / 4.0) / 4.0 / 4, 0.06);
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
  plan.stages.front() = stage_on_host(kActorGeneration, {1, 1}, 4, 8);
  EXPECT_GT(ideal(job, plan, cluster, Pass::kSyncWeights, OpClass::kTransfer), 0);
}

TEST(Latency, SyncMovesOnlyWhatIsNotThere) {
  const JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 2);
  Plan plan = uniform_plan(job, {4, 1}, 2, 8);
  const auto bytes_at_rate = [&](const Plan& of, OpClass operation) {
    return work_of(job, of, cluster, Pass::kSyncWeights).at(OpClass::kTransfer)[operation];
  };
  plan.stages.front() = stage_on_host(kActorGeneration, {2, 1}, 4, 8);
  // A rank of two holds its half; under four its device holds at most a quarter, for some none.
  const double half = 2.0 * double(weight_elements(job.model(Role::kActor), {2, 1})[0]);
  EXPECT_NEAR(bytes_at_rate(plan, OpClass::kSend), half / cluster.in_host.bandwidth,
              0.01 * half / cluster.in_host.bandwidth);
  for (auto& unit : plan.stages.front().units) {
    for (DeviceId& device : unit) device.host = 1;
  }
  // Eight devices of the other host share its one NIC.
  EXPECT_NEAR(bytes_at_rate(plan, OpClass::kFarSend), 8 * half / 25e9, 0.01 * half / 25e9);
}

TEST(Latency, OffloadedStateComesAndGoes) {
  const JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 1);
  Plan plan = uniform_plan(job, {4, 1}, 2, 8);
  EXPECT_FALSE(work_of(job, plan, cluster, Pass::kTrain).contains(OpClass::kTransfer));
  for (StagePlan& stage : plan.stages) stage.offload = true;
  const double state = 14.0 * double(weight_elements(job.model(Role::kActor), {4, 1})[0]);
  const auto copy = [&](Pass pass) {
    return work_of(job, plan, cluster, pass).at(OpClass::kTransfer)[OpClass::kHostCopy];
  };
  EXPECT_NEAR(copy(Pass::kTrain), 2 * state / cluster.to_host.bandwidth, 1e-3);
  EXPECT_NEAR(copy(Pass::kLogProbs), state / 7 / cluster.to_host.bandwidth, 1e-3);
}

TEST(Latency, OverlapHidesGradientsBehindTheLastBackwardPass) {
  JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 1);
  const Plan plan = uniform_plan(job, {1, 1}, 8, 1);
  const double all = ideal(job, plan, cluster, Pass::kTrain, OpClass::kGradientComm);
  job.execution.gradient_overlap = 0.5;
  const double some = ideal(job, plan, cluster, Pass::kTrain, OpClass::kGradientComm);
  EXPECT_GT(some, 0);
  EXPECT_LT(some, all);
}

TEST(Latency, AsynchronousStepsTakeTheLongerSide) {
  JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 4);
  Plan plan = uniform_plan(job, {1, 1}, 2, 8);
  for (auto& unit : plan.stages.front().units) unit.front().index += 2;
  const StepLatency in_turn = predict_step(plan, job, cluster, {});
  job.workflow = one_step_off_policy(job.workflow);
  const StepLatency overlapped = predict_step(plan, job, cluster, {});
  const Seconds generation = in_turn.nodes.front().predicted;
  const Seconds sync = in_turn.nodes.back().predicted;
  const Seconds rest = in_turn.total - generation - sync;
  EXPECT_NEAR(overlapped.total.count(), (std::max(generation, rest) + sync).count(), 1e-9);
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

TEST(Latency, IntervalsNarrowAsClassesAreSeen) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 2);
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  Calibration calibration;
  const StepLatency before = predict_step(plan, job, cluster, calibration);
  EXPECT_THAT(before.unseen, testing::Contains(OpClass::kDecode));
  for (int i = 0; i < 20; ++i) {
    for (OpClass op_class : before.unseen) {
      calibration.observe(op_class, Seconds(default_efficiency(op_class)), Seconds(1));
    }
  }
  const StepLatency after = predict_step(plan, job, cluster, calibration);
  EXPECT_NEAR(after.total / before.total, 1, 1e-9);
  EXPECT_TRUE(after.unseen.empty());
  EXPECT_GT(before.estimate.high / before.total, 1.5);
  EXPECT_LT(after.estimate.high / after.total, 1.05);
  EXPECT_LE(before.estimate.low, before.total);
}

TEST(Latency, AProfileOfOperationsCountsUntilTheWholeClassIsMeasured) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 2);
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  const Work work = work_of(job, plan, cluster, Pass::kTrain);
  const double launch = work.at(OpClass::kCompute)[OpClass::kLaunch];
  Calibration calibration;
  const double before = predicted_time(work, calibration).count();
  calibration.observe(OpClass::kLaunch, Seconds(1), Seconds(1));
  const double profiled = predicted_time(work, calibration).count();
  EXPECT_NEAR(before - profiled, launch * (1 / 0.3 - 1), 1e-9);
  calibration.observe(OpClass::kCompute, Seconds(0.3), Seconds(1));
  EXPECT_NEAR(predicted_time(work, calibration).count(), before, 1e-9);
}

TEST(Latency, TwiceTheRatesIsHalfTheTime) {
  EXPECT_TRUE(rc::check("scaling", [] {
    const JobSpec job = large_job(*rc::gen::inRange(16, 4096));
    Cluster cluster = named_cluster(*rc::gen::element<std::string>("h200x8", "mi250x8"), 1);
    const Layout layout{*rc::gen::element(1, 2, 4), *rc::gen::element(1, 2)};
    const Plan plan = uniform_plan(job, layout, 1, *rc::gen::inRange(1, 9));
    const auto rated = [&] {
      double time = 0;
      for (const WorkflowNode& node : job.workflow.nodes) {
        if (!runs_on_devices(node.pass)) continue;
        for (const auto& [whole, operations] : ideal_node_work(node, plan, job, cluster)) {
          time += operations.sum() - operations[OpClass::kLaunch];
        }
      }
      return time;
    };
    const double before = rated();
    cluster.device.flops *= 2;
    cluster.device.memory_bandwidth *= 2;
    for (LinkSpec* link : {&cluster.in_host, &cluster.between_hosts, &cluster.to_host}) {
      *link = {link->bandwidth * 2, link->latency * 0.5};
    }
    RC_ASSERT(std::abs(before / rated() - 2) < 1e-9);
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
  constexpr NodeId kGen{0}, kLeft{1}, kRight{2}, kTrain{3};
  workflow.edges = {{kGen, kLeft}, {kGen, kRight}, {kLeft, kTrain}, {kRight, kTrain}};
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
