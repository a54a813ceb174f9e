#include "nereus/core/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "nereus/core/cost/test_job.h"
#include "nereus/core/planner/placement.h"
#include "nereus/core/planner/report.h"

namespace nereus {
namespace {

using testing::HasSubstr;

// Every placement of one model-stage with every micro-batch and recomputation, or number of waves,
// written down naively.
std::vector<StagePlan> all_stage_plans(ModelStage model_stage, const JobSpec& job,
                                       const DevicePool& pool,
                                       const std::vector<int>& micro_batches) {
  std::vector<StagePlan> plans;
  for (int tp : {1, 2, 4}) {
    for (int pp : {1, 2, 3, 4}) {
      if (pp == 3 && model_stage.stage != Stage::kTraining) continue;
      for (int dp = 1; dp <= most_units({tp, pp}, pool); ++dp) {
        if (model_stage.stage == Stage::kGeneration) {
          for (int waves = 1; waves * dp <= job.workload.samples; waves *= 2) {
            plans.push_back(place(model_stage, {tp, pp}, dp, 1, false, pool));
            plans.back().waves = waves;
          }
          continue;
        }
        for (int size : micro_batches) {
          for (bool recompute : {false, true}) {
            if (recompute && model_stage.stage != Stage::kTraining) continue;
            plans.push_back(place(model_stage, {tp, pp}, dp, size, recompute, pool));
          }
        }
      }
    }
  }
  EXPECT_LE(most_units({8, 1}, pool), 0);
  EXPECT_GE(job.model(model_stage.role).num_layers, 4);
  return plans;
}

struct Outcome {
  Seconds step;
  Bytes peak;
};

// The step time and peak of every plan there is.
std::vector<Outcome> enumerate(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                               const std::vector<int>& micro_batches) {
  std::vector<std::vector<StagePlan>> choices;
  for (ModelStage model_stage : model_stages(job.workflow)) {
    choices.push_back(all_stage_plans(model_stage, job, pool, micro_batches));
  }
  std::vector<Outcome> outcomes;
  std::vector<size_t> digits(choices.size());
  while (true) {
    Plan plan;
    for (size_t i = 0; i < choices.size(); ++i) plan.stages.push_back(choices[i][digits[i]]);
    Bytes peak;
    for (const auto& [device, bytes] : predict_memory(plan, job, {}).peak) {
      peak = std::max(peak, bytes);
    }
    outcomes.push_back({predict_step(plan, job, cluster, {}).total, peak});
    size_t i = 0;
    while (i < digits.size() && ++digits[i] == choices[i].size()) digits[i++] = 0;
    if (i == digits.size()) return outcomes;
  }
}

// For budgets from far too small to ample: choose_plan finds the fastest step of the enumeration.
void expect_optimal(JobSpec job, int devices, const std::vector<int>& micro_batches) {
  Cluster cluster = cpu_cluster(devices, Bytes(1 << 30), 2);
  const DevicePool pool = all_devices(cluster);
  const std::vector<Outcome> outcomes = enumerate(job, cluster, pool, micro_batches);
  Bytes least(std::numeric_limits<int64_t>::max()), most;
  for (const Outcome& outcome : outcomes) {
    least = std::min(least, outcome.peak);
    most = std::max(most, outcome.peak);
  }
  int infeasible = 0;
  for (int i = -1; i <= 24; ++i) {
    const Bytes budget = least + (most - least) * (std::pow(i, 3) / std::pow(24, 3)) + Bytes(i);
    Seconds fastest(std::numeric_limits<double>::infinity());
    for (const Outcome& outcome : outcomes) {
      if (outcome.peak <= budget) fastest = std::min(fastest, outcome.step);
    }
    cluster.device.memory = budget;
    const Expected<PlanChoice> choice =
        choose_plan(job, cluster, pool, {}, {.headroom = 0, .micro_batches = micro_batches});
    ASSERT_EQ(choice.has_value(), std::isfinite(fastest.count())) << i;
    if (!choice) {
      ++infeasible;
      continue;
    }
    EXPECT_NEAR(choice->best.latency.total.count(), fastest.count(), 2e-9) << i;
    EXPECT_TRUE(memory_violations(predict_memory(choice->best.plan, job, {}), cluster, 0).empty());
  }
  EXPECT_EQ(infeasible, 1);
}

TEST(Planner, EqualsExhaustiveEnumerationOnTwoDevices) {
  JobSpec job = stories_job(128);
  job.workload.samples = job.workload.mini_batch = 16;
  expect_optimal(job, 2, {4, 16});
}

TEST(Planner, EqualsExhaustiveEnumerationOnFourDevices) {
  JobSpec job = stories_job(64);
  job.workflow = ppo_workflow(false);
  job.workload.samples = job.workload.mini_batch = 4;
  expect_optimal(job, 4, {1, 4});
}

TEST(Planner, ARewardModelMayHaveMicroBatchesOfItsOwn) {
  JobSpec job = stories_job(64);
  job.workflow = ppo_workflow(true, /*with_reward_model=*/true);
  job.models[Role::kReward] = {as_critic(stories_spec()), DType::kFloat32};
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 2);
  const PlannerOptions options{.micro_batches = {2},
                               .own_micro_batches = {{Role::kReward, {3, 8}}}};
  const auto choice = choose_plan(job, cluster, all_devices(cluster), {}, options);
  ASSERT_TRUE(choice) << choice.error();
  ASSERT_EQ(choice->best.plan.stages.size(), 5u);
  for (const StagePlan& stage : choice->best.plan.stages) {
    const bool scores = stage.model_stage.role == Role::kReward;
    if (stage.model_stage.stage == Stage::kGeneration) continue;
    EXPECT_THAT(stage.micro_batch, scores ? testing::AnyOf(3, 8) : testing::AnyOf(2, 2));
  }
}

TEST(Planner, AlternativesFitAndAreSortedWithinTheTolerance) {
  const JobSpec job = stories_job(128);
  const Cluster cluster = cpu_cluster(4, Bytes(60 << 20), 2);
  const PlannerOptions options{.keep = 5, .tolerance = 0.5};
  const auto choice = choose_plan(job, cluster, all_devices(cluster), {}, options);
  ASSERT_TRUE(choice) << choice.error();
  EXPECT_EQ(choice->alternatives.size(), 5);
  Seconds last = choice->best.latency.total;
  for (const Candidate& candidate : choice->alternatives) {
    EXPECT_GE(candidate.latency.total.count(), last.count() - 1e-9);
    const MemoryPrediction memory = predict_memory(candidate.plan, job, {});
    EXPECT_TRUE(memory_violations(memory, cluster, options.headroom).empty());
    last = candidate.latency.total;
  }
  EXPECT_LE(last / choice->best.latency.total, 1.5);
}

TEST(Planner, AlternativesDifferInTheActorsLayouts) {
  const JobSpec job = stories_job(128);
  const Cluster cluster = cpu_cluster(4, Bytes(60 << 20), 4);
  const auto choice = choose_plan(job, cluster, all_devices(cluster), {}, {.tolerance = 1});
  ASSERT_TRUE(choice) << choice.error();
  EXPECT_EQ(choice->alternatives.size(), 8);
  std::vector<Candidate> all{choice->best};
  all.insert(all.end(), choice->alternatives.begin(), choice->alternatives.end());
  std::set<std::vector<Layout>> seen;
  for (const Candidate& candidate : all) {
    std::vector<Layout> layouts;
    for (const StagePlan& stage : candidate.plan.stages) {
      if (stage.model_stage.role == Role::kActor) layouts.push_back(stage.layout);
    }
    EXPECT_TRUE(seen.insert(layouts).second) << to_string(candidate.plan);
  }
}

// What the runtime has to support is considered only if it is allowed, and then where it pays.
TEST(Planner, OffloadAndOptimizerShardingMakeRoomWhereTheyAreAllowed) {
  const JobSpec job = stories_job(128);
  Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 4);
  const auto choose = [&](bool offload, int zero) {
    return choose_plan(job, cluster, all_devices(cluster), {},
                       {.allow_offload = offload, .most_zero = zero});
  };
  const auto shards = [](const StagePlan& stage) { return stage.layout.zero > 1; };
  const auto offloads = [](const StagePlan& stage) { return stage.offload; };
  int faster_sharded = 0, only_offloaded = 0;
  for (Bytes memory(2 << 20); memory < Bytes(24 << 20); memory = memory * 1.1) {
    cluster.device.memory = memory;
    const auto plain = choose(false, 1), sharded = choose(false, 4), offloaded = choose(true, 1);
    if (plain) {
      EXPECT_FALSE(std::ranges::any_of(plain->best.plan.stages, shards));
      EXPECT_FALSE(std::ranges::any_of(plain->best.plan.stages, offloads));
      faster_sharded += sharded->best.latency.total < plain->best.latency.total &&
                        std::ranges::any_of(sharded->best.plan.stages, shards);
    } else if (offloaded) {
      only_offloaded += std::ranges::any_of(offloaded->best.plan.stages, offloads);
      cluster.hosts[0].memory = Bytes();  // without room in the host nothing can wait there
      EXPECT_FALSE(choose(true, 1));
      cluster.hosts[0].memory = Bytes(1 << 30);
    }
  }
  EXPECT_GT(faster_sharded, 0);
  EXPECT_GT(only_offloaded, 0);
}

// Responses of four times the length: their cache fits in waves only.
TEST(Planner, WritesLongResponsesInWaves) {
  JobSpec job = stories_job(512);
  const Cluster cluster = cpu_cluster(2, Bytes(20 << 20), 2);
  const auto waves = [&] {
    const auto choice = choose_plan(job, cluster, all_devices(cluster), {}, {});
    return choice ? at(choice->best.plan, kActorGeneration).waves : 0;
  };
  const int of_long = waves();
  EXPECT_GT(of_long, 1);
  job.workload.response_limit /= 4;
  job.workload.response_mean /= 4;
  EXPECT_EQ(waves(), 1);
}

TEST(Planner, MoreMemoryIsNeverSlower) {
  const JobSpec job = stories_job(128);
  Seconds before(std::numeric_limits<double>::infinity());
  for (int mebibytes : {8, 10, 12, 16, 24, 48, 96, 1024}) {
    const Cluster cluster = cpu_cluster(4, Bytes(int64_t{mebibytes} << 20), 2);
    const auto choice = choose_plan(job, cluster, all_devices(cluster), {}, {});
    if (!choice) continue;
    EXPECT_LE(choice->best.latency.total.count(), before.count() + 1e-9);
    before = choice->best.latency.total;
  }
  EXPECT_TRUE(std::isfinite(before.count()));
}

TEST(Planner, TheFastestThatDoNotFitAreReported) {
  const JobSpec job = stories_job(128);
  const Cluster cluster = cpu_cluster(4, Bytes(16 << 20), 2);
  const auto choice = choose_plan(job, cluster, all_devices(cluster), {}, {});
  ASSERT_TRUE(choice) << choice.error();
  const auto report = report_plan(job, cluster, all_devices(cluster), {}, {});
  ASSERT_TRUE(report) << report.error();
  EXPECT_EQ(report->best.plan, choice->best.plan);
  const std::vector<Rejection>& rejected = report->runners_up;
  ASSERT_FALSE(rejected.empty());
  EXPECT_THAT(rejected.front().why, HasSubstr("does not fit: device 0:0 needs"));
  EXPECT_LT(rejected.front().step, choice->best.latency.total);
}

TEST(Planner, InfeasibleNamesTheClosestPlanAndWhatItLacks) {
  const JobSpec job = stories_job(128);
  const Cluster cluster = cpu_cluster(2, Bytes(2 << 20), 2);
  const auto choice = choose_plan(job, cluster, all_devices(cluster), {}, {});
  ASSERT_FALSE(choice);
  EXPECT_THAT(choice.error(), HasSubstr("no plan fits 2 devices of 2.00 MiB"));
  EXPECT_THAT(choice.error(), HasSubstr("actor/training tp"));
  EXPECT_THAT(choice.error(), HasSubstr("device 0:0 needs"));
  EXPECT_FALSE(choose_plan(job, cluster, DevicePool(), {}, {}));
}

// Five sequences on three or on four units: the fullest unit has two either way.
TEST(Planner, EquallyFastPlansKeepTheCurrentOne) {
  JobSpec job = stories_job();
  job.workload.samples = job.workload.mini_batch = 5;
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 4);
  const auto plan_for = [&](const Plan* current) {
    return choose_plan(job, cluster, all_devices(cluster), {}, {}, current)->best.plan;
  };
  const Plan first = plan_for(nullptr);
  const StagePlan& reference = first.stages.back();
  Plan other = first;
  other.stages.back() = place(reference.model_stage, reference.layout, reference.dp() == 3 ? 4 : 3,
                              reference.micro_batch, false, all_devices(cluster));
  EXPECT_EQ(plan_for(&first), first);
  EXPECT_EQ(plan_for(&other), other);
}

TEST(Planner, TensorGroupsStayInAHostAndOddDevicesAreLeftOut) {
  const DevicePool pool({{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {1, 3}});
  EXPECT_EQ(most_units({2, 1}, pool), 3);
  EXPECT_EQ(most_units({2, 2}, pool), 1);
  EXPECT_EQ(most_units({4, 1}, pool), 1);
  EXPECT_EQ(most_units({8, 1}, pool), 0);
  const StagePlan stage = place(kActorTraining, {2, 1}, 3, 1, false, pool);
  const std::vector<std::vector<DeviceId>> units = {
      {{1, 0}, {1, 1}}, {{1, 2}, {1, 3}}, {{0, 0}, {0, 1}}};
  EXPECT_EQ(stage.units, units);
  EXPECT_THROW(place({}, {2, 1}, 4, 1, false, pool), Error);
}

TEST(Planner, SevenDevicesTrainInSevenStages) {
  const JobSpec job = large_job(2048);
  const Cluster cluster = named_cluster("h200x8", 1);
  std::vector<DeviceId> devices = all_devices(cluster).devices();
  devices.pop_back();
  const auto choice = choose_plan(job, cluster, DevicePool(devices), {}, {});
  ASSERT_TRUE(choice) << choice.error();
  for (const Role role : {Role::kActor, Role::kCritic}) {
    const StagePlan& training = at(choice->best.plan, {role, Stage::kTraining});
    EXPECT_EQ(training.layout, (Layout{.tp = 1, .pp = 7})) << to_string(training);
  }
}

TEST(Planner, LeavesDevicesIdleThatShareTheSameCores) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 2);  // two cores: two devices are enough
  const auto free = choose_plan(job, cluster, all_devices(cluster), {}, {});
  ASSERT_TRUE(free);
  EXPECT_EQ(devices_of(free->best.plan).size(), 2);
}

TEST(Planner, SixteenDevicesGiveAPlanThatVerifies) {
  const JobSpec job = large_job();
  const Cluster cluster = named_cluster("h200x8", 2);
  const DevicePool pool = all_devices(cluster);
  const auto choice = choose_plan(job, cluster, pool, {}, {});
  ASSERT_TRUE(choice) << choice.error();
  verify(choice->best.plan, pool, job);
  EXPECT_EQ(devices_of(choice->best.plan).size(), 16);
}

// Two sequences do not fill eight devices: whoever need not wait for others has devices of its own.
TEST(Planner, ThreeModelStagesMayHaveDevicesOfTheirOwn) {
  JobSpec job = stories_job();
  job.workflow = one_step_off_policy(ppo_workflow(false));
  job.workload.samples = job.workload.mini_batch = 2;
  job.workload.prompt_tokens = 512;  // so that generation takes less than training
  const Cluster cluster = cpu_cluster(8, Bytes(1 << 30), 8);
  const auto best = [&](const PlannerOptions& options) {
    return choose_plan(job, cluster, all_devices(cluster), {}, options)->best;
  };
  const Candidate colocated = best({});
  for (const int every_begin : {0, 16}) {
    const Candidate apart = best({.side_by_side = true, .every_begin = every_begin});
    EXPECT_LT(apart.latency.total, colocated.latency.total * 0.7);
    std::vector<DeviceId> devices;
    for (const StagePlan& stage : apart.plan.stages) {
      for (const std::vector<DeviceId>& unit : stage.units) {
        devices.insert(devices.end(), unit.begin(), unit.end());
      }
    }
    EXPECT_EQ(apart.plan.stages.size(), 3u);
    EXPECT_EQ(devices_of(apart.plan).size(), int(devices.size())) << to_string(apart.plan);
  }
}

TEST(PlanReport, JsonHasTheDocumentedKeys) {
  const JobSpec job = stories_job();
  const Cluster cluster = cpu_cluster(4, Bytes(64 << 20), 2);
  const auto report = report_plan(job, cluster, all_devices(cluster), {}, {});
  ASSERT_TRUE(report) << report.error();
  const Json j = to_json(*report, {});
  EXPECT_EQ(j.at("plan").get<Plan>(), report->best.plan);
  const double step = j.at("step_s");
  EXPECT_LT(j.at("step_s_low").get<double>(), step);
  EXPECT_GT(j.at("step_s_high").get<double>(), step);
  EXPECT_EQ(j.at("stages_s").size(), job.workflow.nodes.size());
  EXPECT_TRUE(j.at("memory").at(0).contains("component"));
  EXPECT_TRUE(j.at("runners_up").at(0).contains("why"));
  EXPECT_EQ(j.at("idle").size(), 2);  // two cores: two devices are enough
  // The best of all layouts is the best plan's.
  double least = std::numeric_limits<double>::infinity();
  for (const Json& layout : j.at("layouts")) {
    if (!layout.at("step_s").is_null()) least = std::min(least, layout.at("step_s").get<double>());
  }
  EXPECT_NEAR(least, step, 2e-9);
}

TEST(PlanReport, SaysWhatWouldHelp) {
  const JobSpec job = stories_job(128);
  const Cluster cluster = cpu_cluster(2, Bytes(2 << 20), 2);
  const auto changes = what_would_help(job, cluster, all_devices(cluster), {}, {});
  ASSERT_EQ(changes.size(), 3);
  EXPECT_THAT(to_json(changes).dump(), HasSubstr("twice the devices (4)"));
  // Nothing fits; twice the memory or twice the devices help, and what does not comes last.
  const Cluster close = cpu_cluster(2, Bytes(4 << 20), 2);
  ASSERT_FALSE(choose_plan(job, close, all_devices(close), {}, {}));
  const auto some_help = what_would_help(job, close, all_devices(close), {}, {});
  const auto helps = [](const Change& change) { return change.step.has_value(); };
  EXPECT_TRUE(std::ranges::is_partitioned(some_help, helps));
  EXPECT_TRUE(helps(some_help.front()) && !helps(some_help.back()));
  const Cluster ample = cpu_cluster(2, Bytes(1 << 30), 2);
  const auto best = choose_plan(job, ample, all_devices(ample), {}, {});
  const auto faster = what_would_help(job, ample, all_devices(ample), {}, {});
  for (const Change& change : faster) {
    ASSERT_TRUE(change.step);
    EXPECT_LE(change.step->count(), best->best.latency.total.count() + 2e-9);
  }
  EXPECT_LT(*faster.front().step, best->best.latency.total);
}

}  // namespace
}  // namespace nereus
