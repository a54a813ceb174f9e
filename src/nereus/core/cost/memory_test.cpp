#include "nereus/core/cost/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>

#include "nereus/core/cost/pass_memory.h"
#include "nereus/core/cost/test_job.h"
#include "nereus/core/workflow/capabilities.h"

namespace nereus {
namespace {

using testing::HasSubstr;

Bytes sum_of(const MemoryPrediction& prediction, DeviceId device, ModelStage model_stage,
             const std::string& component) {
  Bytes sum;
  for (const MemoryEntry& entry : prediction.entries) {
    if (entry.device == device && entry.model_stage == model_stage &&
        entry.component == component) {
      sum += entry.bytes;
    }
  }
  return sum;
}

Plan with_stages(Plan plan, const std::function<void(StagePlan&)>& change) {
  for (StagePlan& stage : plan.stages) change(stage);
  return plan;
}

Bytes largest_peak(const Plan& plan, const JobSpec& job) {
  Bytes largest;
  for (const auto& [device, bytes] : predict_memory(plan, job, {}).peak) {
    largest = std::max(largest, bytes);
  }
  return largest;
}

ModelSpec with_experts(ModelSpec spec) {
  spec.model_type = "qwen3_moe";
  spec.num_experts = 6;
  spec.experts_per_token = 2;
  spec.moe_intermediate_size = 44;
  return spec;
}

TEST(Shape, PartElementsEqualTheStateOfEachRank) {
  EXPECT_TRUE(rc::check("closed form = sum over boxes", [] {
    ModelSpec spec = stories_spec();
    spec.num_layers = *rc::gen::inRange(1, 9);
    spec.vocab_size = *rc::gen::inRange(500, 520);
    spec.tie_word_embeddings = *rc::gen::arbitrary<bool>();
    spec.qkv_bias = *rc::gen::arbitrary<bool>();
    spec.qk_norm = *rc::gen::arbitrary<bool>();
    if (*rc::gen::arbitrary<bool>()) spec = as_critic(spec);
    Layout layout{.tp = *rc::gen::element(1, 2, 4, 8),
                  .pp = *rc::gen::inRange(1, spec.num_layers + 1),
                  .zero = *rc::gen::inRange(1, 4)};
    if (*rc::gen::arbitrary<bool>()) {
      spec = with_experts(spec);
      layout.ep = layout.tp % 2 == 0 ? 2 : 1;
    }
    const StateSchema schema = state_schema({spec, DType::kFloat32}, kActorTraining);
    const auto weights = part_elements(spec, layout, StatePart::kWeights);
    const auto optimizer = part_elements(spec, layout, StatePart::kOptimizer);
    for (int index = 0; index < layout.devices(); ++index) {
      RC_ASSERT(4 * weights[index] + 8 * optimizer[index] ==
                state_bytes(schema, layout, index).count());
    }
  }));
}

TEST(Shape, ATokenPassesTheExpertsItIsSentTo) {
  const ModelSpec spec = with_experts(stories_spec());
  EXPECT_EQ(active_ffn(spec), 2 * 44);
  EXPECT_NEAR(touched_experts(spec, 1), 2.0 / 6, 1e-12);
  EXPECT_NEAR(touched_experts(spec, 100), 1, 1e-12);
  EXPECT_EQ(touched_experts(stories_spec(), 1), 1);
}

TEST(Memory, ResidentComponentsAreTheStateOfTheSchema) {
  for (const JobSpec& job : {stories_job(), large_job()}) {
    const Plan plan = uniform_plan(job, {2, 2}, 2, 4);
    const MemoryPrediction prediction = predict_memory(plan, job, {});
    const StateSchema schema = state_schema(job.models.at(Role::kActor), kActorTraining);
    for (const StagePlan& stage = at(plan, kActorTraining); const auto& unit : stage.units) {
      for (int index = 0; index < 4; ++index) {
        Bytes sum;
        for (const char* component : {"weights", "master", "moments"}) {
          sum += sum_of(prediction, unit[index], kActorTraining, component);
        }
        EXPECT_EQ(sum, state_bytes(schema, stage.layout, index));
      }
    }
  }
}

TEST(Memory, GenerationWeightsAreFreeWhereTrainingHoldsTheSameShards) {
  const JobSpec job = stories_job();
  Plan plan = uniform_plan(job, {2, 1}, 2, 8);
  EXPECT_EQ(sum_of(predict_memory(plan, job, {}), {0, 3}, kActorGeneration, "weights"), Bytes());

  for (StagePlan& stage : plan.stages) {
    if (stage.model_stage == kActorGeneration) {
      stage = stage_on_host(kActorGeneration, {1, 1}, 4, 8);
    }
  }
  EXPECT_EQ(sum_of(predict_memory(plan, job, {}), {0, 3}, kActorGeneration, "weights").count(),
            4 * parameter_count(stories_spec()));
}

TEST(Memory, WeightsThatWaitInHostMemoryAreNotShared) {
  const JobSpec job = stories_job();
  const Plan plan = with_stages(uniform_plan(job, {2, 1}, 2, 8), [](StagePlan& stage) {
    stage.offload = stage.model_stage == kActorTraining;
  });
  EXPECT_GT(sum_of(predict_memory(plan, job, {}), {0, 3}, kActorGeneration, "weights"), Bytes());
}

TEST(Memory, OfARankIsThatOfItsDevices) {
  const JobSpec job = stories_job();
  for (bool offload : {false, true}) {
    StagePlan stage = stage_on_host(kActorTraining, {2, 2}, 2, 4);
    stage.offload = offload;
    const std::vector<RankBytes> ranks =
        rank_bytes(stage, state_elements(stories_spec(), stage.layout), job, {});
    const MemoryPrediction all = predict_memory({{stage}}, job, {});
    for (const std::vector<DeviceId>& unit : stage.units) {
      for (size_t rank = 0; rank < unit.size(); ++rank) {
        EXPECT_EQ(ranks[rank].resident, all.resident.at(unit[rank]));
        EXPECT_EQ(ranks[rank].resident + ranks[rank].passing, all.peak.at(unit[rank]));
        EXPECT_EQ(ranks[rank].parked > Bytes(), offload);
      }
    }
    if (!offload) continue;
    Bytes parked;
    for (const RankBytes& rank : ranks) parked += rank.parked;
    EXPECT_EQ(parked * 2, all.peak.at(DeviceId{0, kHostMemory}));
  }
}

TEST(Memory, EarlyPipelineStagesKeepMoreMicroBatchesAlive) {
  const JobSpec job = large_job();
  const StagePlan stage = stage_on_host(kActorTraining, {1, 4}, 1, 4);
  const auto activations = [&](int index) {
    for (const NamedBytes& need : transient(stage, job, index, 0)) {
      if (need.component == "activations") return need.bytes;
    }
    return Bytes();
  };
  const Bytes one_micro_batch = activations(1) - activations(2);
  EXPECT_GT(one_micro_batch, Bytes());
  EXPECT_EQ(activations(0) - activations(1), one_micro_batch);
  EXPECT_GT(activations(2), activations(3));
}

TEST(Memory, GrowsWithWorkAndShrinksWithRecomputation) {
  EXPECT_TRUE(rc::check("monotone", [] {
    const int64_t response = *rc::gen::inRange(16, 256);
    const int micro_batch = *rc::gen::inRange(1, 9);
    const Layout layout{*rc::gen::element(1, 2, 4), *rc::gen::element(1, 2)};
    const int dp = *rc::gen::inRange(1, 4);
    const JobSpec job = stories_job(response);
    const Plan plan = uniform_plan(job, layout, dp, micro_batch);
    const Bytes peak = largest_peak(plan, job);
    RC_ASSERT(largest_peak(plan, stories_job(response + kCacheBlockTokens)) > peak);
    RC_ASSERT(largest_peak(uniform_plan(job, layout, dp, micro_batch + 1), job) >= peak);
    RC_ASSERT(largest_peak(uniform_plan(job, layout, dp + 1, micro_batch), job) <= peak);
    RC_ASSERT(largest_peak(uniform_plan(job, layout, dp, micro_batch, true), job) <= peak);
    RC_ASSERT(largest_peak(uniform_plan(job, {2 * layout.tp, layout.pp}, dp, micro_batch), job) <
              peak);
  }));
}

// Where the share of an optimizer step is smaller than the micro-batch allowed, the passes that
// only infer work on more sequences at once.
TEST(Memory, InferenceOnTrainingUnitsMayNeedTheMost) {
  JobSpec job = stories_job(128);
  job.workload.mini_batch = 4;
  const auto transient_of = [&](int micro_batch) {
    const Plan plan = uniform_plan(job, {1, 1}, 1, micro_batch, true);
    Bytes bytes;
    for (const MemoryEntry& entry : predict_memory(plan, job, {}).entries) {
      const bool counts = !entry.resident && entry.model_stage == kActorTraining;
      bytes += counts ? entry.bytes : Bytes();
    }
    return bytes;
  };
  EXPECT_GT(transient_of(64), transient_of(4));
}

TEST(Memory, OffloadedStateIsOnTheHostAndOnTheDeviceOnlyWhileItsPassRuns) {
  const JobSpec job = large_job();
  const Plan plan = uniform_plan(job, {4, 1}, 2, 1);
  const Plan offloaded = with_stages(
      plan, [](StagePlan& stage) { stage.offload = stage.model_stage.role == Role::kCritic; });
  Calibration calibration;
  calibration.observe_memory(Bytes(1000), Bytes(500));
  const MemoryPrediction all = predict_memory(plan, job, calibration);
  const MemoryPrediction less = predict_memory(offloaded, job, calibration);
  const DeviceId device{0, 0};
  Bytes critic;
  for (const MemoryEntry& entry : all.entries) {
    const bool counts = entry.state && entry.model_stage.role == Role::kCritic;
    if (counts && entry.device == device) critic += entry.bytes;
  }
  EXPECT_GT(critic, Bytes(1 << 30));
  EXPECT_EQ(less.resident.at(device), all.resident.at(device) - critic);
  EXPECT_LE(less.peak.at(device), all.peak.at(device));
  EXPECT_GE(less.peak.at(device), less.resident.at(device) + critic);
  EXPECT_EQ(less.peak.at({0, kHostMemory}), critic * 8);

  Cluster cluster = named_cluster("h200x8", 1);
  cluster.hosts[0].memory = Bytes(1 << 30);
  EXPECT_THAT(memory_violations(less, cluster, 0.1), testing::Contains(HasSubstr("host memory")));
}

TEST(Memory, ZeroCutsTheOptimizerStateOnly) {
  const JobSpec job = large_job();
  const Plan plain = uniform_plan(job, {2, 1}, 4, 1);
  StagePlan zero = at(plain, kActorTraining);
  zero.layout.zero = 4;
  zero.units = {{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {0, 7}}};
  const auto component = [&](const StagePlan& stage, const char* name) {
    return sum_of(predict_memory({{stage}}, job, {}), {0, 5}, kActorTraining, name);
  };
  EXPECT_EQ(component(zero, "weights"), component(at(plain, kActorTraining), "weights"));
  EXPECT_EQ(component(zero, "gradients"), component(at(plain, kActorTraining), "gradients"));
  EXPECT_NEAR(component(zero, "moments") / component(at(plain, kActorTraining), "moments"), 0.25,
              1e-3);
}

TEST(Memory, OtherFrameworksKeepLess) {
  JobSpec job = large_job(4096);
  job.workload.response_mean = 512;
  const Plan plan = uniform_plan(job, {4, 1}, 2, 2);
  const auto component = [&](ModelStage model_stage, const char* name) {
    return sum_of(predict_memory(plan, job, {}), {0, 0}, model_stage, name).count();
  };
  const auto whole_cache = component(kActorGeneration, "kv_cache");
  const auto whole_activations = component(kActorTraining, "activations");
  job.execution = {.paged_cache = true, .sequence_parallel = true};
  EXPECT_LT(component(kActorGeneration, "kv_cache"), whole_cache / 4);
  EXPECT_LT(component(kActorTraining, "activations"), 0.7 * double(whole_activations));
}

TEST(Memory, WavesShareTheCache) {
  const JobSpec job = large_job(4096);
  const auto need = [&](int waves) {
    StagePlan stage = at(uniform_plan(job, {4, 1}, 2, 2), kActorGeneration);
    stage.waves = waves;
    return double(
        sum_of(predict_memory({{stage}}, job, {}), {0, 0}, kActorGeneration, "kv_cache").count());
  };
  // But for the one block that belongs to nobody.
  EXPECT_NEAR(need(2) / need(1), 1.0 / 2, 1e-4);
  EXPECT_NEAR(need(8) / need(1), 1.0 / 8, 1e-4);
}

TEST(Memory, ARuntimeTakesItsPartOfAnAccelerator) {
  const DeviceSpec cpu{.kind = "cpu", .memory = Bytes(1000)};
  const DeviceSpec gpu{.kind = "h200", .memory = Bytes(int64_t{100} << 30)};
  EXPECT_EQ(usable_memory(cpu, 0.1), Bytes(900));
  EXPECT_NEAR(usable_memory(gpu, 0.1) / gpu.memory, (0.9 - 0.0125) / 1.05, 1e-6);
  EXPECT_EQ(usable_memory({.kind = "h200", .memory = Bytes(1)}, 0), Bytes());
}

TEST(Memory, OnlyTheLargestPassCountsAndIsCalibrated) {
  const JobSpec job = stories_job();
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  Calibration calibration;
  calibration.observe_memory(Bytes(1000), Bytes(2000));
  const MemoryPrediction plain = predict_memory(plan, job, {});
  const MemoryPrediction doubled = predict_memory(plan, job, calibration);
  const DeviceId device{0, 0};
  Bytes training;
  for (const char* component : {"gradients", "activations", "logits"}) {
    training += sum_of(plain, device, kActorTraining, component);
  }
  EXPECT_EQ(plain.peak.at(device), plain.resident.at(device) + training);
  EXPECT_EQ(doubled.peak.at(device), doubled.resident.at(device) + training * 2);
}

// Peaks that the CPU runtime reported above its resident state, PPO on stories260K in float32.
TEST(Memory, TransientPeaksAreThoseMeasured) {
  struct Measured {
    Layout layout;
    int dp;
    int micro_batch;
    bool recompute;
    int64_t response;
    int device;
    double mebibytes;
  };
  for (const Measured& run : {Measured{{1, 1}, 4, 8, false, 128, 0, 35.3},
                              {{1, 1}, 4, 8, true, 128, 0, 11.1},
                              {{1, 1}, 2, 16, false, 64, 0, 37.5},
                              {{2, 1}, 2, 8, false, 128, 0, 20.9},
                              {{1, 2}, 2, 8, false, 128, 0, 33.6},
                              {{1, 2}, 2, 8, false, 128, 1, 19.5},
                              {{4, 1}, 1, 8, false, 128, 0, 13.3},
                              {{2, 2}, 1, 8, false, 128, 0, 21.1},
                              {{2, 2}, 1, 8, false, 128, 2, 11.4}}) {
    JobSpec job = stories_job(run.response);
    job.workload.prompt_tokens = 12;
    const MemoryPrediction prediction = predict_memory(
        uniform_plan(job, run.layout, run.dp, run.micro_batch, run.recompute), job, {});
    const DeviceId device{0, run.device};
    const Bytes transient = prediction.peak.at(device) - prediction.resident.at(device);
    EXPECT_NEAR(double(transient.count()) / (1 << 20) / run.mebibytes, 1, 0.08)
        << to_string(run.layout) << " device " << run.device << (run.recompute ? " recompute" : "");
  }
}

// A shape of Llama 3: 1, 3 or 8 billion parameters.
ModelSpec llama(const std::string& shape) {
  ModelSpec spec = large_job().model(Role::kActor);
  if (shape == "8b") return spec;
  const bool is_1b = shape == "1b";
  spec.hidden_size = is_1b ? 2048 : 3072;
  spec.intermediate_size = 8192;
  spec.num_layers = is_1b ? 16 : 28;
  spec.num_heads = is_1b ? 32 : 24;
  spec.head_dim = is_1b ? 64 : 128;
  spec.tie_word_embeddings = true;
  return spec;
}

// Peaks of optimizer steps on H200s (bench/gpu_training --memory), bf16 weights with fp32 master
// and moments, without what cuBLAS keeps for itself.
TEST(Memory, PeaksOnGpusAreThoseMeasured) {
  struct Measured {
    std::string shape;
    int tp;
    bool recompute;
    int64_t sequences, micro_batch, length;
    double gibibytes;
  };
  for (const Measured& run : {Measured{"1b", 1, false, 16, 8, 512, 26.44},
                              {"3b", 1, false, 8, 8, 512, 64.87},
                              {"3b", 2, false, 16, 8, 512, 34.07},
                              {"8b", 2, false, 8, 8, 512, 78.99},
                              {"1b", 1, false, 4, 2, 2048, 26.44},
                              {"1b", 1, true, 16, 8, 512, 22.06},
                              {"3b", 1, true, 8, 8, 512, 55.89},
                              {"3b", 2, true, 16, 8, 512, 28.59},
                              {"8b", 2, true, 8, 8, 512, 69.48},
                              {"3b", 1, true, 2, 2, 2048, 55.89}}) {
    JobSpec job = large_job();
    job.models[Role::kActor].spec = llama(run.shape);
    job.execution = {.fused_kernels = true, .recomputes_only_what_is_read = true};
    job.workload = {.samples = run.sequences,
                    .prompt_tokens = 1,
                    .response_mean = double(run.length - 1),
                    .response_limit = run.length - 1,
                    .mini_batch = run.sequences};
    const Plan plan{{stage_on_host(kActorTraining, {run.tp, 1}, 1,
                                   static_cast<int>(run.micro_batch), run.recompute)}};
    const Bytes peak = predict_memory(plan, job, {}).peak.at({0, 0});
    EXPECT_NEAR(double(peak.count()) / (1 << 30) / run.gibibytes, 1, 0.01)
        << run.shape << " tp" << run.tp << (run.recompute ? " recompute" : "");
  }
}

TEST(Memory, ViolationsNameDeviceBytesAndComponents) {
  const JobSpec job = stories_job(128);
  const MemoryPrediction prediction = predict_memory(uniform_plan(job, {1, 1}, 4, 8), job, {});
  Cluster cluster = cpu_cluster(4, Bytes(10 << 20), 2);
  const std::vector<std::string> violations = memory_violations(prediction, cluster, 0.1);
  ASSERT_EQ(violations.size(), 4);
  EXPECT_THAT(violations[0], HasSubstr("device 0:0 needs"));
  EXPECT_THAT(violations[0], HasSubstr("9.00 MiB"));
  EXPECT_THAT(violations[0], HasSubstr("actor/training activations"));
  cluster.device.memory = Bytes(1 << 30);
  EXPECT_TRUE(memory_violations(prediction, cluster, 0.1).empty());
}

}  // namespace
}  // namespace nereus
