#include "nereus/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "nereus/base/error.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Config parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "test.yaml", ".", overrides);
}

std::string refusal(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  try {
    parse(yaml, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    return error.what();
  }
  return "accepted";
}

// The smallest config that verify() accepts.
Config valid() {
  Config config;
  config.data.train_files = "prompts.jsonl";
  config.data.train_batch_size = 8;
  config.actor.ppo_mini_batch_size = 4;
  config.model.path = config.critic.model.path = "model";
  config.reward.name = "digit_completion";
  config.trainer.total_training_steps = 1;
  config.cluster.memory_per_device = Bytes(1 << 20);
  return config;
}

std::string contradiction(const Config& config) {
  try {
    verify(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Config, ReadsValuesOfEveryKind) {
  const Config config = parse(R"(
data:
  max_response_length: [[0, 32], [16, 64]]
actor_rollout_ref:
  actor:
    optim: {lr: 3e-4, betas: [0.9, 0.95]}
    ppo_micro_batch_size_per_gpu: 8
    clip_ratio_high: 0.28
algorithm: {use_kl_in_reward: true}
cluster: {memory_per_device: 1.5MiB}
supply: [[0, 4], [8, 2]]
plan: {all: {tp: 2}, actor/training: {pp: 2, recompute: true}}
)");
  EXPECT_EQ(config.data.max_response_length.entries,
            (std::vector<std::pair<int, int64_t>>{{0, 32}, {16, 64}}));
  EXPECT_EQ(config.actor.optim.lr, 3e-4);
  EXPECT_EQ(config.actor.ppo_micro_batch_size_per_gpu, std::vector<int>{8});
  EXPECT_EQ(config.actor.clip_ratio_high, 0.28);
  EXPECT_TRUE(config.algorithm.use_kl_in_reward);
  EXPECT_EQ(config.cluster.memory_per_device, Bytes(1572864));
  EXPECT_EQ(config.supply.counts.entries[1].second, 2);
  EXPECT_EQ(config.plan.stages.at("all").tp, 2);
  EXPECT_TRUE(config.plan.stages.at("actor/training").recompute);
}

TEST(Config, OverridesWinOverTheFile) {
  const Config config =
      parse("trainer: {seed: 3}", {"trainer.seed=5", "+actor_rollout_ref.rollout.n=8",
                                   "data.max_response_length=[[0,16],[4,32]]", "plan.all.tp=4"});
  EXPECT_EQ(config.trainer.seed, 5);
  EXPECT_EQ(config.rollout.n, 8);
  EXPECT_EQ(config.data.max_response_length.entries[1].second, 32);
  EXPECT_EQ(config.plan.stages.at("all").tp, 4);
}

TEST(Config, NullKeepsTheDefault) { EXPECT_EQ(parse("trainer: {seed: null}").trainer.seed, 1); }

TEST(Config, WritesWhatItReads) {
  Config config = parse(R"(
data: {max_response_length: [[0, 32], [16, 64]], train_batch_size: 8}
actor_rollout_ref: {actor: {optim: {lr: 3.0e-4}, clip_ratio_low: 0.1}}
cluster: {memory_per_device: 48MiB}
supply: [[0, 4], [8, 2]]
plan: {all: {tp: 2}}
)");
  const std::string yaml = to_yaml(config);
  EXPECT_THAT(yaml, AllOf(HasSubstr("lr: 3e-04"), HasSubstr("memory_per_device: 48MiB"),
                          HasSubstr("max_response_length: [[0, 32], [16, 64]]")));
  const Config again = parse(yaml);
  EXPECT_EQ(to_yaml(again), yaml);
  EXPECT_EQ(again.plan, config.plan);
  EXPECT_EQ(again.supply, config.supply);
}

TEST(Config, UnknownKeysAreRefusedWithTheNearestKnownOne) {
  EXPECT_THAT(refusal("trainer:\n  total_training_step: 5\n"),
              AllOf(HasSubstr("test.yaml:2: unknown option trainer.total_training_step"),
                    HasSubstr("did you mean trainer.total_training_steps?")));
  EXPECT_THAT(refusal("rollout: {temperature: 1}"),
              HasSubstr("did you mean actor_rollout_ref.rollout.temperature?"));
  EXPECT_THAT(refusal("", {"data.train_batchsize=1"}),
              HasSubstr("did you mean data.train_batch_size?"));
  EXPECT_THAT(refusal("xyzzy: 1"), HasSubstr("docs/config.md"));
  EXPECT_THAT(refusal("xyzzy: {}"), HasSubstr("unknown option xyzzy"));
}

TEST(Config, WrongTypesNameKeyValueAndExpectation) {
  EXPECT_THAT(refusal("data:\n  train_batch_size: eight\n"),
              HasSubstr("test.yaml:2: data.train_batch_size = eight: expected a whole number"));
  EXPECT_THAT(refusal("", {"trainer.seed=1.5"}),
              HasSubstr("command line: trainer.seed = 1.5: expected a whole number"));
  EXPECT_THAT(refusal("cluster: {memory_per_device: 12 bananas}"), HasSubstr("48MiB"));
  EXPECT_THAT(refusal("data: 5"), HasSubstr("data is a section"));
  EXPECT_THAT(refusal("data: {shuffle: maybe}"), HasSubstr("expected true or false"));
  EXPECT_THAT(refusal("data:\n  shuffle: true\n  shuffle: false\n"), HasSubstr("given twice"));
  EXPECT_THAT(refusal("a: [1"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("", {"seed"}), HasSubstr("key=value"));
}

TEST(Config, MissingFilesSayWhereTheyWereLookedFor) {
  EXPECT_THAT(refusal("data: {train_files: nowhere.jsonl}"),
              AllOf(HasSubstr("data.train_files"), HasSubstr("there is no nowhere.jsonl")));
}

TEST(Config, ContradictionsNameTheirNumbers) {
  EXPECT_EQ(contradiction(valid()), "accepted");
  Config config = valid();
  config.actor.ppo_mini_batch_size = 16;
  EXPECT_THAT(contradiction(config),
              AllOf(HasSubstr("ppo_mini_batch_size = 16"), HasSubstr("train_batch_size = 8")));
  config = valid();
  config.algorithm.adv_estimator = "remax";
  EXPECT_THAT(contradiction(config), AllOf(HasSubstr("algorithm.adv_estimator"), HasSubstr("remax"),
                                           HasSubstr("gae, grpo, rloo")));
  config = valid();
  config.critic.model.path.clear();
  EXPECT_EQ(contradiction(config), "critic.model.path is missing");
  config.algorithm.adv_estimator = "grpo";
  EXPECT_EQ(contradiction(config), "accepted");
  config = valid();
  config.reward_model.enable = true;
  EXPECT_THAT(contradiction(config), HasSubstr("reward.name = digit_completion beside "
                                               "reward_model.enable = true: give one of them"));
  config.reward.name.clear();
  EXPECT_EQ(contradiction(config), "reward_model.model.path is missing");
  config.reward_model.model.path = "model";
  EXPECT_EQ(contradiction(config), "accepted");
  config.reward_model.micro_batch_size_per_gpu = {4, 0};
  EXPECT_THAT(contradiction(config), HasSubstr("micro_batch_size_per_gpu = 0"));
  config = valid();
  config.rollout.temperature = 0;
  EXPECT_THAT(contradiction(config), HasSubstr("rollout.temperature = 0"));
  config = valid();
  config.rollout.val_kwargs.do_sample = true;
  EXPECT_THAT(contradiction(config), HasSubstr("rollout.val_kwargs.temperature = 0"));
  config = valid();
  config.trainer.test_freq = 5;
  EXPECT_THAT(contradiction(config),
              AllOf(HasSubstr("trainer.test_freq = 5"), HasSubstr("data.val_files")));
  config.data.val_files = config.data.train_files;
  EXPECT_EQ(contradiction(config), "accepted");
  config = valid();
  config.supply.counts.entries = {{0, 4}};
  EXPECT_THAT(contradiction(config), HasSubstr("4 devices at step 0"));
  config = valid();
  config.data.max_response_length.entries = {{0, 8}, {4, 8}, {2, 8}};
  EXPECT_THAT(contradiction(config), HasSubstr("2 follows 4"));
  config = valid();
  config.actor.use_kl_loss = true;
  config.actor.kl_loss_type = "kl";
  EXPECT_THAT(contradiction(config), HasSubstr("low_var_kl"));
  config = valid();
  config.dtype = "float16";
  EXPECT_THAT(contradiction(config),
              AllOf(HasSubstr("actor_rollout_ref.model.dtype"), HasSubstr("use bfloat16")));
  config = valid();
  config.reward.unscored = "ignore";
  EXPECT_THAT(contradiction(config), HasSubstr("exclude, zero, stop"));
  config = valid();
  config.plan.stages["actor/dreaming"] = {};
  EXPECT_THAT(contradiction(config), HasSubstr("dreaming"));
}

TEST(Config, RunDirectoriesAreNamedPlainly) {
  Config config;
  config.trainer.experiment_name = "a";
  EXPECT_EQ(run_directory(config), "runs/a");
  const auto named = [&](const char* name) {
    config.trainer.default_local_dir = name;
    return run_directory(config);
  };
  EXPECT_EQ(named("out/x/"), "out/x");
  EXPECT_EQ(named("./out//x"), "out/x");
  EXPECT_EQ(named("."), std::filesystem::current_path());
  const auto link = std::filesystem::temp_directory_path() / "nereus_run_link";
  std::filesystem::remove(link);
  std::filesystem::create_directory_symlink("/usr", link);
  EXPECT_EQ(named(link.c_str()), "/usr") << "the run goes where the link leads";
  std::filesystem::remove(link);
}

TEST(Config, ReferencePageIsUpToDate) {
  std::ifstream file(NEREUS_SOURCE_DIR "/docs/config.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == config_reference())
      << "run ./nereus config --markdown > docs/config.md";
}

}  // namespace
}  // namespace nereus
