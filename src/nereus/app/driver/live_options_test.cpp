#include "nereus/app/driver/live_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/app/assemble/job.h"
#include "nereus/core/base/error.h"

namespace nereus {
namespace {

LiveOptions options_with(const std::vector<std::string>& overrides) {
  const std::string yaml = R"(
data: {train_files: README.md, train_batch_size: 8}
actor_rollout_ref: {model: {path: src}, actor: {ppo_mini_batch_size: 2, ppo_epochs: 3}}
algorithm: {adv_estimator: grpo}
trainer: {total_training_steps: 25}
reward: {name: digit_completion}
cluster: {device: cpu, memory_per_device: 1MiB}
)";
  return to_live_options(parse_config(yaml, "test.yaml", NEREUS_SOURCE_DIR, overrides));
}

// As verl: optimizer steps within a step do not count, and without a number it is the share.
TEST(LiveOptions, SchedulesCountSteps) {
  const std::string optim = "actor_rollout_ref.actor.optim.";
  const std::string ratio = optim + "lr_warmup_steps_ratio=0.1";
  const auto warmup = [](const std::vector<std::string>& overrides) {
    return options_with(overrides).actor_optimizer.lr_warmup_steps;
  };
  EXPECT_EQ(options_with({}).actor_optimizer.total_steps, 25);
  EXPECT_EQ(options_with({}).critic_optimizer.total_steps, 25);
  EXPECT_EQ(warmup({}), 0);
  EXPECT_EQ(warmup({optim + "lr_warmup_steps=7"}), 7);
  EXPECT_EQ(warmup({ratio}), 2);
  EXPECT_EQ(warmup({ratio, optim + "lr_warmup_steps=-1"}), 2);
  EXPECT_EQ(warmup({ratio, optim + "lr_warmup_steps=7"}), 7);
}

TEST(LiveOptions, UnscoredSamples) {
  EXPECT_TRUE(options_with({}).exclude_unscored);
  EXPECT_EQ(options_with({}).max_reward_failures, 0.05);
  EXPECT_FALSE(options_with({"reward.unscored=zero"}).exclude_unscored);
  EXPECT_EQ(options_with({"reward.unscored=stop"}).max_reward_failures, 0);
}

// What a plan is made for is what runs.
TEST(LiveOptions, TheLiveJobIsTheOneThatIsPlanned) {
  for (const char* file : {"quickstart", "grpo"}) {
    for (const char* change : {"trainer.seed=2", "actor_rollout_ref.actor.use_kl_loss=true",
                               "data.max_response_length=[[0, 8], [1, 16]]"}) {
      const Config config =
          load_config(std::string(NEREUS_SOURCE_DIR) + "/examples/" + file + ".yaml",
                      {change, "cluster.device=cpu", "cluster.memory_per_device=64MiB"});
      for (const int step : {0, 1}) {
        EXPECT_EQ(job_spec(to_live_options(config), step),
                  to_job_spec(config, /*on_gpus=*/false, step))
            << file << " with " << change;
      }
    }
  }
}

TEST(LiveOptions, SeveralHostsCanBePlannedForButNotRunOn) {
  const Config config = load_config(std::string(NEREUS_SOURCE_DIR) + "/examples/quickstart.yaml",
                                    {"cluster.device=cpu", "cluster.hosts=2"});
  EXPECT_EQ(to_job_spec(config, /*on_gpus=*/false).workload.samples, 64);
  EXPECT_THROW(to_live_options(config), Error);
}

}  // namespace
}  // namespace nereus
