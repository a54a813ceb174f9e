#include "nereus/runtime/live/live_job.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::largest_difference;
using testing::state_of;
using testing::switch_to;
using testing::tiny_job;
using testing::uniform_plan;

class LiveJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("nereus_live_" + std::to_string(::getpid()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path root_;
};

TEST_F(LiveJobTest, RemaxScoresOneGreedyResponseToEachPrompt) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/2);
  options.models.erase(Role::kCritic);
  options.reward = "response_length";
  options.reward_options = {{"sign", 1}};
  options.ppo.advantage.estimator = AdvantageEstimator::kRemax;
  options.ppo.use_kl_in_reward = false;
  options.models.erase(Role::kReference);
  Experience seen;
  options.on_experience = [&](const Experience& experience) { seen = experience; };
  LiveJob straight(options, uniform_plan(options, {1, 1}, 2));
  const StepReport report = straight.run_step();
  std::map<int64_t, std::set<double>> baselines;
  double largest = 0;
  for (const Sample& sample : seen) {
    baselines[sample.group].insert(sample.baseline);
    largest = std::max(largest, std::abs(sample.baseline));
    ASSERT_FALSE(sample.advantages.empty());
    EXPECT_NEAR(sample.advantages.front(), sample.score - sample.baseline, 1e-12);
  }
  EXPECT_EQ(baselines.size(), 8u);
  for (const auto& [group, values] : baselines) EXPECT_EQ(values.size(), 1u) << group;
  EXPECT_GT(largest, 0) << "nothing was scored";
  EXPECT_TRUE(report.metrics.contains("timing_s/gen_max"));
  straight.save(root_, Json(), 0);
  straight.run_step();
  LiveJob resumed(options, uniform_plan(options, {2, 1}, 1));
  resumed.resume(*newest_checkpoint(root_));
  resumed.run_step();
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_LT(largest_difference(state_of(straight).at("actor"), state_of(resumed).at("actor")),
            1e-10);
}

// By what is drawn they would differ: the greedy response is that of any temperature.
TEST_F(LiveJobTest, RemaxBaselinesAreNotDrawn) {
  std::vector<std::vector<double>> baselines(2), scores(2);
  for (size_t i = 0; i < 2; ++i) {
    LiveOptions options = tiny_job(/*devices=*/1, /*steps=*/1);
    options.models.erase(Role::kCritic);
    options.ppo.advantage.estimator = AdvantageEstimator::kRemax;
    options.reward = "response_length";
    options.reward_options = {{"sign", 1}};
    options.sampling.temperature = i == 0 ? 1 : 0.05;
    options.response_length = {{{0, 24}}};
    options.on_experience = [&](const Experience& experience) {
      for (const Sample& sample : experience) {
        baselines[i].push_back(sample.baseline);
        scores[i].push_back(sample.score);
      }
    };
    LiveJob(options, uniform_plan(options, {1, 1}, 1)).run_step();
  }
  EXPECT_EQ(baselines[0], baselines[1]);
  EXPECT_NE(scores[0], scores[1]) << "nothing was drawn";
}

TEST_F(LiveJobTest, ResumesBitEqual) {
  const LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/3);
  const Plan plan = uniform_plan(options, {2, 1}, 1);
  LiveJob straight(options, plan);
  for (int step = 0; step < 3; ++step) straight.run_step();

  LiveJob first(options, plan);
  first.run_step();
  first.save(root_, {{"note", "kept"}}, 1);
  LiveJob second(options, plan);
  const Json extra = second.resume(*newest_checkpoint(root_));
  EXPECT_EQ(extra.at("note"), "kept");
  EXPECT_EQ(second.step(), 1);
  second.run_step();
  second.run_step();
  EXPECT_EQ(second.state_hashes(), straight.state_hashes());
}

TEST_F(LiveJobTest, ResumesUnderAnotherLayout) {
  const LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/2);
  LiveJob first(options, uniform_plan(options, {1, 1}, 4));
  first.run_step();
  first.save(root_, Json(), 0);
  LiveJob second(options, uniform_plan(options, {2, 2}, 1));
  second.resume(*newest_checkpoint(root_));
  EXPECT_EQ(second.state_hashes(), first.state_hashes());
}

// A run that was stopped on more devices than it had at its first step goes on with them.
TEST_F(LiveJobTest, ResumesOnDevicesThatWereNotThereAtTheStart) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/2);
  options.supply = supply_of_counts(options.cluster, {{0, 1}, {1, 2}});
  LiveJob first(options, uniform_plan(options, {1, 1}, 1));
  first.run_step();
  first.save(root_, Json(), 0);
  LiveJob second(options, uniform_plan(options, {1, 1}, 2));
  second.resume(*newest_checkpoint(root_));
  EXPECT_EQ(second.state_hashes(), first.state_hashes());
}

TEST_F(LiveJobTest, RefusesToTrainWhatItCanOnlyMove) {
  const LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/1);
  Plan sharded = uniform_plan(options, {1, 1}, 1);
  for (StagePlan& stage : sharded.stages) {
    if (stage.model_stage.stage != Stage::kTraining) continue;
    stage.layout.zero = 2;
    stage.units = {{{0, 0}, {0, 1}}};
  }
  try {
    LiveJob job(options, sharded);
    FAIL() << "optimizer sharding was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_NE(std::string(error.what()).find("zero 2 can be planned and moved"), std::string::npos)
        << error.what();
  }
}

TEST_F(LiveJobTest, SharesTheBytesOfEqualShards) {
  const LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/1);
  const Plan same = uniform_plan(options, {1, 1}, 2);
  Plan different = same;
  different.stages.front().layout = {2, 1};
  different.stages.front().units = {{{0, 0}, {0, 1}}};
  ASSERT_EQ(different.stages.front().model_stage.stage, Stage::kGeneration);
  LiveJob aliased(options, same);
  LiveJob copied(options, different);
  const Bytes shared = aliased.run_step().resident_bytes.at({0, 0});
  const Bytes separate = copied.run_step().resident_bytes.at({0, 0});
  EXPECT_GT(separate, shared) << "another layout needs its own copy of the weights";
}

TEST_F(LiveJobTest, StopsAtTheMemoryBudget) {
  LiveOptions options = tiny_job(/*devices=*/1, /*steps=*/1);
  options.backend = {};  // a GPU's allocator takes more than tiny models do
  options.cluster.device.memory = Bytes(1 << 20);
  try {
    LiveJob job(options, uniform_plan(options, {1, 1}, 1));
    job.run_step();
    FAIL() << "training state and activations fitted into 1 MiB";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
  }
}

// Half-precision weights: gradients add up in fp32 over the micro-batches, AdamW works on the fp32
// master copy, and the weights are its rounding.
TEST_F(LiveJobTest, TrainsHalfPrecisionWeightsThroughAMasterCopy) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/2);
  options.dtype = DType::kFloat32;
  LiveJob full(options, uniform_plan(options, {1, 1}, 2));
  options.dtype = DType::kBFloat16;
  LiveJob half(options, uniform_plan(options, {2, 1}, 1));
  const Plan other = uniform_plan(options, {1, 2}, 1);
  const double expected = full.run_step().metrics.at("critic/grad_norm");
  EXPECT_NEAR(half.run_step().metrics.at("critic/grad_norm"), expected, 0.1 * expected);
  switch_to(half, options, other);
  half.run_step();
  for (const auto& [part, tensors] : state_of(half)) {
    int compared = 0;
    for (const auto& [name, tensor] : tensors) {
      if (!name.starts_with("weights/")) continue;
      const at::Tensor master = tensors.at("master/" + name.substr(8));
      EXPECT_EQ(master.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::equal(tensor, master.to(at::kBFloat16))) << part << " " << name;
      ++compared;
    }
    EXPECT_GT(compared, 20);
  }
}

TEST_F(LiveJobTest, KeepsTheBatchThatMetNaN) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/2);
  options.failure_directory = root_;
  options.actor_optimizer.lr = 1e300;  // the first update blows the weights up
  LiveJob job(options, uniform_plan(options, {1, 1}, 2));
  try {
    job.run_step();
    job.run_step();
    FAIL() << "weights of 1e300 went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumeric) << error.what();
  }
  EXPECT_FALSE(std::filesystem::is_empty(root_));
}

// As in verl: the first step of a warm-up has the rate 0, and so changes no weight.
TEST_F(LiveJobTest, AWarmUpBeginsWithTheRateZero) {
  LiveOptions options = tiny_job(/*devices=*/1, /*steps=*/2);
  options.actor_optimizer.lr_warmup_steps = 2;
  LiveJob job(options, uniform_plan(options, {1, 1}, 1));
  const auto change = [&](const std::string& part, const std::map<std::string, TensorMap>& before) {
    const auto now = state_of(job);
    double largest = 0;
    for (const auto& [name, tensor] : now.at(part)) {
      if (!name.starts_with("weights/")) continue;
      largest = std::max(largest, (tensor - before.at(part).at(name)).abs().max().item<double>());
    }
    return largest;
  };
  const auto start = state_of(job);
  job.run_step();
  EXPECT_EQ(change("actor", start), 0);
  EXPECT_GT(change("critic", start), 0) << "it has no warm-up";
  job.run_step();
  EXPECT_GT(change("actor", start), 0);
}

TEST_F(LiveJobTest, RefusesContradictions) {
  const auto message_of = [](LiveOptions options) {
    try {
      job_spec(options, 0);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  LiveOptions large_mini_batch = tiny_job(1, 1);
  large_mini_batch.ppo.mini_batch = 9;
  EXPECT_NE(message_of(large_mini_batch).find("choose 1 to 8"), std::string::npos);
  LiveOptions no_reference = tiny_job(1, 1);
  no_reference.models.erase(Role::kReference);
  EXPECT_NE(message_of(no_reference).find("needs a reference"), std::string::npos);
  LiveOptions no_critic = tiny_job(1, 1);
  no_critic.models.erase(Role::kCritic);
  EXPECT_NE(message_of(no_critic).find("needs a critic"), std::string::npos);
  LiveOptions idle_critic = tiny_job(1, 1);
  idle_critic.ppo.advantage.estimator = AdvantageEstimator::kRloo;
  EXPECT_NE(message_of(idle_critic).find("rloo has no use for a critic"), std::string::npos);
  idle_critic.models.erase(Role::kCritic);
  EXPECT_EQ(job_spec(idle_critic, 0).workflow.algorithm, "rloo");
  LiveOptions too_long = tiny_job(1, 1);
  too_long.response_length = {{{0, 5000}}};
  EXPECT_NE(message_of(too_long).find("max_position_embeddings"), std::string::npos);
}

}  // namespace
}  // namespace nereus
