// A reward model in a job: its scores under any layout, its place in transitions and memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "nereus/core/transition/compile.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;
using testing::tiny_job;
using testing::tiny_model;
using testing::uniform_plan;

// A directory with the actor's shape under a scalar head, and weights of which the score's are
// `score`.
std::filesystem::path reward_model(const at::Tensor& score) {
  const auto directory = tiny_model() / "reward";
  const ModelSpec spec = as_critic(read_model_spec(tiny_model()));
  TensorMap weights = random_model(spec, DType::kFloat64, 5);
  weights["score.weight"] = score;
  write_text(directory / "config.json", to_hf_config(spec, DType::kFloat64).dump());
  write_safetensors(directory / "model.safetensors", weights);
  return directory;
}

LiveOptions scored_job(int devices, int steps) {
  LiveOptions options = tiny_job(devices, steps);
  options.reward.clear();
  options.models[Role::kReward] = {
      reward_model(at::arange(32, at::kDouble).reshape({1, 32}) / 16 - 1)};
  return options;
}

std::vector<StepReport> run(LiveJob& job) {
  std::vector<StepReport> reports;
  while (!job.done()) reports.push_back(job.run_step());
  return reports;
}

void expect_same(const StepReport& actual, const StepReport& expected) {
  for (const char* metric : {"critic/score/mean", "critic/score/max", "critic/score/min",
                             "actor/pg_loss", "actor/grad_norm", "critic/vf_loss"}) {
    EXPECT_NEAR(actual.metrics.at(metric), expected.metrics.at(metric), 1e-10)
        << metric << " in step " << expected.step;
  }
}

TEST(RewardModel, TransitionsChangeNoScore) {
  const LiveOptions options = scored_job(/*devices=*/4, /*steps=*/5);
  const std::vector<Plan> plans = {
      uniform_plan(options, {1, 1}, 4), uniform_plan(options, {2, 1}, 2),
      uniform_plan(options, {1, 2}, 1), uniform_plan(options, {2, 2}, 1),
      uniform_plan(options, {4, 1}, 1)};
  LiveJob fixed(options, uniform_plan(options, {1, 1}, 1));
  LiveJob adaptive(options, plans.front());
  const JobSpec spec = job_spec(options, 0);
  for (const Plan& plan : plans) {
    if (plan != adaptive.plan()) {
      const auto dag =
          compile_transition(adaptive.plan(), plan, spec, options.cluster, Calibration());
      ASSERT_TRUE(dag) << dag.error();
      EXPECT_TRUE(adaptive.apply(*dag).verified);
    }
    const StepReport expected = fixed.run_step();
    EXPECT_LT(expected.metrics.at("critic/score/min"), expected.metrics.at("critic/score/max"));
    expect_same(adaptive.run_step(), expected);
  }
  EXPECT_FALSE(fixed.state_hashes().contains("reward/score.weight")) << "it is not trained";
}

TEST(RewardModel, SmallerMicroBatchesGoOnWithTheSameScores) {
  LiveOptions options = scored_job(/*devices=*/2, /*steps=*/1);
  if (!options.backend.is_cpu()) GTEST_SKIP() << "a GPU's allocator takes more than tiny models do";
  const auto job_with = [&](int micro_batch) {
    Plan plan = uniform_plan(options, {1, 1}, 2);
    for (StagePlan& stage : plan.stages) stage.micro_batch = 1;
    plan.stages.back().micro_batch = micro_batch;
    EXPECT_EQ(plan.stages.back().model_stage, kRewardInference);
    return std::make_unique<LiveJob>(options, plan);
  };
  const auto highest_peak = [](const StepReport& report) {
    return std::ranges::max_element(report.peak_bytes, {}, [](const auto& e) { return e.second; })
        ->second;
  };
  options.response_length = {{{0, 48}}};
  const StepReport expected = run(*job_with(8)).front();
  const Bytes least = highest_peak(run(*job_with(1)).front()), most = highest_peak(expected);
  ASSERT_GT(most, least) << "scoring sets the peak";
  options.cluster.device.memory = least + (most - least) * 0.5;
  const StepReport actual = run(*job_with(8)).front();
  ASSERT_TRUE(actual.adjusted_plan);
  EXPECT_LT(at(*actual.adjusted_plan, kRewardInference).micro_batch, 8);
  expect_same(actual, expected);
}

TEST(RewardModel, ScoresThatAreNotFiniteStopTheStep) {
  LiveOptions options = scored_job(/*devices=*/1, /*steps=*/1);
  reward_model(at::full({1, 32}, 1e308, at::kDouble));
  options.failure_directory = tiny_model() / "failed";
  LiveJob job(options, uniform_plan(options, {1, 1}, 1));
  try {
    job.run_step();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumeric);
    EXPECT_THAT(error.what(), HasSubstr("the reward model's score of sample 0 is not finite"));
    EXPECT_THAT(error.what(), HasSubstr("failed_step_1.json"));
  }
}

TEST(RewardModel, ScoresTheValidation) {
  LiveOptions options = scored_job(/*devices=*/2, /*steps=*/1);
  options.data.shuffle = false;
  options.sampling.greedy = true;
  options.validation.file = tiny_model() / "eight.jsonl";
  std::istringstream prompts(read_text(options.data.train_file));
  std::string eight;  // those of the first step
  for (std::string line; std::ranges::count(eight, '\n') < 8 && std::getline(prompts, line);) {
    eight += line + "\n";
  }
  write_text(options.validation.file, eight);
  LiveJob job(options, uniform_plan(options, {2, 1}, 1));
  const auto validated = job.validate_at_start();
  const StepReport report = job.run_step();
  EXPECT_NEAR(validated.at("val-core/unknown/reward/mean@1"),
              report.metrics.at("critic/score/mean"), 1e-9);
}

TEST(RewardModel, MustGiveScores) {
  LiveOptions options = scored_job(/*devices=*/1, /*steps=*/1);
  options.models[Role::kReward] = options.models[Role::kActor];
  try {
    job_spec(options, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds a language model, which gives no score"));
  }
}

}  // namespace
}  // namespace nereus
