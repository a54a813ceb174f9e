#include "nereus/app/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  config.algorithm.adv_estimator = "gea";
  EXPECT_THAT(contradiction(config), AllOf(HasSubstr("algorithm.adv_estimator"), HasSubstr("gea"),
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

// Of `count` characters or words.
std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Config, YamlThatNeverEndsIsRefusedWithItsLine) {
  for (const std::string& cycle :
       {std::string("trainer: &x\n  seed: 1\n  more: *x\n"), std::string("data: &x [1, [*x]]\n"),
        std::string("plan: &x\n  all: *x\n"), std::string("&x {trainer: *x}\n"),
        std::string("supply: &x [[0, 1], *x]\n")}) {
    EXPECT_THAT(refusal(cycle), AllOf(HasSubstr("test.yaml:"), HasSubstr("contains itself")));
  }
  EXPECT_THAT(refusal("", {"plan=&x {all: *x}"}),
              AllOf(HasSubstr("command line: plan"), HasSubstr("contains itself")));

  std::string laughs = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string alias = "*a" + std::to_string(i - 1) + ", ";
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + repeated(alias, 9) +
              "*a" + std::to_string(i - 1) + "]\n";
  }
  EXPECT_THAT(refusal(laughs), HasSubstr("more than 100000 values"));

  for (const int depth : {51, 600, 60'000}) {
    for (const std::string& deep :
         {"supply: " + repeated("[", depth) + repeated("]", depth), "a: " + repeated("{a: ", depth),
          "- " + repeated("- ", depth) + "1", repeated("? ", depth)}) {
      EXPECT_THAT(refusal(deep), AllOf(HasSubstr("test.yaml"), Not(HasSubstr("accepted"))));
    }
  }
  EXPECT_THAT(refusal("supply: " + repeated("[", 60) + "1" + repeated("]", 60)),
              HasSubstr("test.yaml:1: nested deeper than 50 levels"));
  EXPECT_THAT(refusal(std::string(2 << 20, '#')), HasSubstr("bytes of YAML"));
  EXPECT_THAT(refusal("{a: 1}: 2"), HasSubstr("test.yaml:1: a key must be a single word"));
  EXPECT_THAT(refusal("trainer: {seed: 1}\n---\ntrainer: {seed: 2}\n"),
              HasSubstr("second document"));
  EXPECT_EQ(parse("---\ntrainer: {seed: 7}\n...\n").trainer.seed, 7);
}

TEST(Config, AliasesMayShareValues) {
  const Config config =
      parse("critic: {optim: &o {lr: 0.5}}\nactor_rollout_ref: {actor: {optim: *o}}");
  EXPECT_EQ(config.actor.optim.lr, 0.5);
}

TEST(Config, KeysGivenTwiceAreRefusedAtEveryLevel) {
  EXPECT_THAT(refusal("plan: {all: {tp: 1, tp: 2}}"), HasSubstr("\"tp\" is given twice"));
  EXPECT_THAT(refusal("trainer: {seed: 1}\ntrainer: {seed: 2}"), HasSubstr("test.yaml:2"));
}

TEST(Config, NumbersOutOfRangeNameKeyAndValue) {
  for (const char* value : {"1e400", ".nan", ".inf", "-.inf", "x", "[1]"}) {
    EXPECT_THAT(refusal("", {std::string("adaptation.gamma=") + value}),
                AllOf(HasSubstr("adaptation.gamma = "), HasSubstr("number")))
        << value;
    EXPECT_THAT(refusal("", {std::string("actor_rollout_ref.actor.clip_ratio_low=") + value}),
                HasSubstr("number"));
  }
  EXPECT_THAT(refusal("", {"actor_rollout_ref.actor.optim.betas=[0.9, .nan]"}),
              HasSubstr("finite number"));
  for (const char* value : {"2147483648", "1e9", "99999999999999999999", "4.9", "true"}) {
    EXPECT_THAT(refusal("", {std::string("cluster.devices=") + value}),
                AllOf(HasSubstr("cluster.devices = "), HasSubstr("expected a whole number")));
  }
  EXPECT_THAT(refusal("", {"plan.all.tp.x=2"}), HasSubstr("too many parts"));
  EXPECT_THAT(refusal("", {"a\x1b[2J=1"}), Not(HasSubstr("\x1b")));
  EXPECT_LT(refusal("", {"data.train_batch_size=" + std::string(100'000, 'x')}).size(), 500U);
  EXPECT_LT(refusal("", {std::string(100'000, 'x') + "=1"}).size(), 500U);
}

TEST(Config, SizesAndTheirProductsAreBounded) {
  const auto refused = [](auto change, const std::string& key) {
    Config config = valid();
    change(config);
    EXPECT_THAT(contradiction(config), AllOf(HasSubstr(key), HasSubstr("or more, up to")));
  };
  static constexpr int64_t kHuge = int64_t{1} << 62;
  refused([](Config& c) { c.cluster.devices = 1'000'000'000; }, "cluster.devices = 1000000000");
  refused([](Config& c) { c.cluster.hosts = 1'000'000'000; }, "cluster.hosts = 1000000000");
  refused([](Config& c) { c.cluster.devices = c.cluster.hosts = 10'000; }, "cluster.devices × ");
  refused([](Config& c) { c.cluster.memory_per_device = Bytes(kHuge); }, "memory_per_device");
  refused([](Config& c) { c.data.max_prompt_length = kHuge; }, "data.max_prompt_length");
  refused([](Config& c) { c.data.max_response_length = {{{0, kHuge}}}; }, "max_response_length");
  refused([](Config& c) { c.data.train_batch_size = kHuge; }, "data.train_batch_size");
  refused([](Config& c) { c.rollout.n = kHuge; }, "rollout.n");
  refused([](Config& c) { c.data.train_batch_size = c.rollout.n = 1 << 20; },
          "rollout.n = 1099511");
  refused(
      [](Config& c) {
        c.data.train_batch_size = 1 << 20;
        c.data.max_prompt_length = 1 << 24;
      },
      "data.max_response_length) = ");
  refused([](Config& c) { c.actor.ppo_epochs = 1 << 30; }, "ppo_epochs");
  refused([](Config& c) { c.actor.ppo_micro_batch_size_per_gpu = {1 << 30}; }, "micro_batch");
  refused([](Config& c) { c.plan.stages["all"] = {.tp = 1 << 12, .pp = 1 << 12}; }, "tp × pp × dp");
  refused([](Config& c) { c.plan.stages["all"] = {.tp = 1 << 30}; }, "plan.all.tp");
  refused([](Config& c) { c.plan.stages["all"].waves = 1 << 30; }, "plan.all.waves");
  refused([](Config& c) { c.supply.counts = {{{0, kHuge}}}; }, "supply at step 0");
}

TEST(Config, OnlyFilesAndDirectoriesAreTakenAsPaths) {
  const std::string pipe = ::testing::TempDir() + "nereus_config_pipe";
  ::unlink(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const char* key : {"data.train_files", "plan", "supply", "reward.lexicon"}) {
    EXPECT_THAT(refusal("", {key + ("=" + pipe)}), AllOf(HasSubstr(key), HasSubstr("a pipe")));
    EXPECT_THAT(refusal("", {std::string(key) + "=/dev/zero"}), HasSubstr("a device"));
    const std::string message = refusal("", {std::string(key) + "=" + std::string(5000, 'a')});
    EXPECT_THAT(message, AllOf(HasSubstr("too long"), Not(HasSubstr("filesystem error"))));
    EXPECT_THAT(refusal("", {std::string(key) + "=\"a\\0b\""}), HasSubstr("NUL"));
  }
  EXPECT_THAT(
      [&] {
        try {
          load_config(pipe);
        } catch (const Error& error) {
          return std::string(error.what());
        }
        return std::string();
      }(),
      HasSubstr("a pipe"));
}

}  // namespace
}  // namespace nereus
