// Samples whose reward could not be had.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::largest_difference;
using testing::state_of;
using testing::tiny_job;
using testing::uniform_plan;
using Metrics = std::map<std::string, double>;

// digit_completion cannot score prompts that are no such task.
constexpr const char* kTasks = "{\"prompt\": \"7,8:9,2\"}\n{\"prompt\": \"5,3:9,2\"}\n";
constexpr const char* kNoTasks = "{\"prompt\": \"7,8\"}\n{\"prompt\": \"4,1\"}\n";

LiveOptions job_on(const std::string& rows, int prompts) {
  LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/1);
  options.data.train_file = testing::tiny_model() / "rows.jsonl";
  write_text(options.data.train_file, rows);
  options.data.train_batch_size = options.ppo.mini_batch = prompts;
  options.data.samples_per_prompt = 4;
  options.data.shuffle = false;
  options.max_reward_failures = 1;
  return options;
}

// Of every estimator, aggregation mode, number of replicas and micro-batch.
TEST(Unscored, UnscoredSamplesChangeNothing) {
  constexpr AdvantageEstimator kEstimators[] = {AdvantageEstimator::kGae, AdvantageEstimator::kGrpo,
                                                AdvantageEstimator::kReinforcePlusPlus};
  for (const AdvantageEstimator estimator : kEstimators) {
    for (const char* mode : {"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
                             "seq-mean-token-sum-norm"}) {
      const auto state_after = [&](LiveOptions options, int dp) {
        options.ppo.advantage.estimator = estimator;
        options.ppo.policy.aggregation = options.ppo.value.aggregation =
            parse_loss_aggregation(mode);
        if (!algorithm(estimator).critic) options.models.erase(Role::kCritic);
        LiveJob job(options, uniform_plan(options, {1, 1}, dp));
        const StepReport report = job.run_step();
        Metrics metrics = report.metrics;
        std::erase_if(metrics, [](const auto& metric) {
          return !metric.first.starts_with("actor/") && !metric.first.starts_with("critic/") &&
                 !metric.first.starts_with("frac");
        });
        return std::pair(state_of(job), metrics);
      };
      const auto [expected, metrics] = state_after(job_on(kTasks, 2), 1);
      EXPECT_GT(metrics.at("actor/grad_norm"), 1e-3);
      for (const int dp : {4}) {
        const auto [actual, own] = state_after(job_on(std::string(kTasks) + kNoTasks, 4), dp);
        for (const auto& [part, tensors] : expected) {
          EXPECT_LT(largest_difference(tensors, actual.at(part)), 1e-10) << mode << ", dp " << dp;
        }
        EXPECT_EQ(own.size(), metrics.size());
        for (const auto& [key, value] : metrics) {
          if (key == "actor/ref_kl") continue;  // of all responses
          EXPECT_NEAR(own.at(key), value, 1e-10) << key << ", " << mode << ", dp " << dp;
        }
      }
    }
  }
}

TEST(Unscored, ABatchWithoutScoredSampleTeachesNothing) {
  const LiveOptions options = job_on(kNoTasks, 2);
  LiveJob job(options, uniform_plan(options, {1, 1}, 2));
  const auto before = job.state_hashes();
  const StepReport report = job.run_step();
  EXPECT_EQ(job.state_hashes(), before);
  EXPECT_EQ(report.metrics.at("reward/excluded"), 8);
  EXPECT_EQ(report.metrics.count("critic/score/mean"), 0u);
  for (const auto& [key, value] : report.metrics) EXPECT_TRUE(std::isfinite(value)) << key;
}

TEST(Unscored, UnscoredSamplesMayCountAsZero) {
  LiveOptions options = job_on(std::string(kTasks) + kNoTasks, 4);
  options.exclude_unscored = false;
  LiveJob job(options, uniform_plan(options, {1, 1}, 2));
  const StepReport report = job.run_step();
  EXPECT_EQ(report.metrics.at("reward/excluded"), 0);
  EXPECT_EQ(report.metrics.at("reward/failures"), 8);
  EXPECT_EQ(report.metrics.count("critic/score/mean"), 1u);
}

}  // namespace
}  // namespace nereus
