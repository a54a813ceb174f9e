#include "nereus/runtime/live/live_job.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "nereus/core/transition/compile.h"
#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

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

  // All logical training state, by part and name.
  std::map<std::string, TensorMap> state_of(const LiveJob& job, const std::string& name) const {
    job.save(root_ / name, Json(), 0);
    const auto checkpoint = newest_checkpoint(root_ / name);
    std::map<std::string, TensorMap> parts;
    for (const StagePlan& stage : job.plan().stages) {
      if (stage.model_stage.stage != Stage::kTraining) continue;
      const std::string part = to_string(stage.model_stage.role);
      parts[part] = read_part(*checkpoint, part);
    }
    return parts;
  }

  // Rule 1 of the design: a run that has plan i in step i matches the run that never changes.
  void expect_transitions_change_nothing(const LiveOptions& options, const std::vector<Plan>& plans,
                                         const std::vector<std::string>& metrics) const;

  std::filesystem::path root_;
};

void switch_to(LiveJob& job, const LiveOptions& options, const Plan& plan) {
  const auto dag =
      compile_transition(job.plan(), plan, job_spec(options, 0), options.cluster, Calibration());
  ASSERT_TRUE(dag) << dag.error();
  const TransitionReport report = job.apply(*dag);
  EXPECT_TRUE(report.verified);
  EXPECT_EQ(job.plan(), plan);
}

double largest_difference(const TensorMap& a, const TensorMap& b) {
  double largest = 0;
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const double difference = (tensor - b.at(name)).abs().max().item<double>();
    EXPECT_TRUE(std::isfinite(difference)) << name;  // NaN is larger than nothing
    largest = std::max(largest, difference);
  }
  return largest;
}

void LiveJobTest::expect_transitions_change_nothing(const LiveOptions& options,
                                                    const std::vector<Plan>& plans,
                                                    const std::vector<std::string>& metrics) const {
  LiveJob fixed(options, uniform_plan(options, {1, 1}, 1));
  LiveJob adaptive(options, plans.front());
  for (size_t step = 0; step < plans.size(); ++step) {
    if (step > 0) switch_to(adaptive, options, plans[step]);
    const StepReport expected = fixed.run_step();
    const StepReport actual = adaptive.run_step();
    EXPECT_EQ(actual.response_tokens, expected.response_tokens) << "step " << step;
    for (const std::string& key : metrics) {
      EXPECT_NEAR(actual.metrics.at(key), expected.metrics.at(key), 1e-10)
          << key << " in step " << step;
    }
  }
  const auto actual = state_of(adaptive, "adaptive");
  for (const auto& [part, tensors] : state_of(fixed, "fixed")) {
    EXPECT_LT(largest_difference(tensors, actual.at(part)), 1e-10) << part;
  }
  EXPECT_TRUE(adaptive.done());
}

TEST_F(LiveJobTest, FiveTransitionsChangeNothing) {
  const LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/6);
  expect_transitions_change_nothing(
      options,
      {uniform_plan(options, {1, 1}, 4), uniform_plan(options, {2, 1}, 2),
       uniform_plan(options, {4, 1}, 1), uniform_plan(options, {1, 2}, 2),
       uniform_plan(options, {2, 2}, 1), uniform_plan(options, {1, 1}, 2, /*recompute=*/true)},
      {"actor/pg_loss", "critic/vf_loss", "critic/rewards/mean", "actor/grad_norm",
       "actor/ref_kl"});
}

// A trained model, group advantages, the KL in the loss, and nothing of a critic anywhere.
TEST_F(LiveJobTest, TransitionsChangeNothingOfGrpo) {
  const std::filesystem::path assets = std::string(NEREUS_SOURCE_DIR) + "/assets";
  LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/4);
  options.actor = {assets / "stories260K"};
  options.reference = options.actor;
  options.critic.reset();
  options.data.train_file = assets / "prompts/stories.jsonl";
  options.data.tokenizer = assets / "stories260K";
  options.reward = "vader_sentiment";
  options.reward_options = {{"lexicon", (assets / "vader/vader_lexicon.txt").string()},
                            {"sign", -1}};
  options.data.samples_per_prompt = 4;
  options.ppo.advantage.estimator = AdvantageEstimator::kGrpo;
  options.ppo.use_kl_in_reward = false;
  options.ppo.policy.use_kl_loss = true;
  options.ppo.policy.kl_loss_coef = 0.1;
  options.response_length = {{{0, 12}}};
  expect_transitions_change_nothing(
      options,
      {uniform_plan(options, {1, 1}, 4), uniform_plan(options, {2, 1}, 2),
       uniform_plan(options, {1, 2}, 2), uniform_plan(options, {4, 1}, 1)},
      {"actor/pg_loss", "actor/kl_loss", "critic/rewards/mean", "critic/advantages/max",
       "actor/grad_norm", "actor/ref_kl"});
  LiveJob job(options, uniform_plan(options, {1, 1}, 1));
  const StepReport report = job.run_step();
  EXPECT_EQ(report.metrics.count("critic/vf_loss"), 0u);
  EXPECT_EQ(report.metrics.count("critic/values/mean"), 0u);
  EXPECT_EQ(state_of(job, "job").size(), 1u) << "the actor alone is trained";
}

// The greedy responses, too, are those of the weights and not of the layout.
TEST_F(LiveJobTest, TransitionsChangeNothingOfRemax) {
  LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/4);
  options.critic.reset();
  options.ppo.advantage.estimator = AdvantageEstimator::kRemax;
  expect_transitions_change_nothing(
      options,
      {uniform_plan(options, {1, 1}, 4), uniform_plan(options, {2, 1}, 2),
       uniform_plan(options, {1, 2}, 2), uniform_plan(options, {4, 1}, 1)},
      {"actor/pg_loss", "critic/rewards/mean", "critic/advantages/max", "critic/baseline/mean",
       "actor/grad_norm", "actor/ref_kl"});
}

TEST_F(LiveJobTest, RemaxScoresOneGreedyResponseToEachPrompt) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/2);
  options.critic.reset();
  options.reward = "response_length";
  options.reward_options = {{"sign", 1}};
  options.ppo.advantage.estimator = AdvantageEstimator::kRemax;
  options.ppo.use_kl_in_reward = false;
  options.reference.reset();
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
  EXPECT_LT(largest_difference(state_of(straight, "straight").at("actor"),
                               state_of(resumed, "resumed").at("actor")),
            1e-10);
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

// Everything but generation moves beside generation; its units follow when the step has ended.
TransitionDag dag_beside_generation(const LiveJob& job, const LiveOptions& options, Plan to) {
  to.stages.front() = job.plan().stages.front();
  EXPECT_EQ(to.stages.front().model_stage.stage, Stage::kGeneration);
  const auto dag =
      compile_transition(job.plan(), to, job_spec(options, 0), options.cluster, Calibration());
  EXPECT_TRUE(dag) << dag.error();
  return *dag;
}

TEST_F(LiveJobTest, OverlappedTransitionsEndInTheSameBytes) {
  LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/2);
  options.link_bandwidth = 50e6;  // slow enough to be under way while responses are generated
  const Plan from = uniform_plan(options, {1, 1}, 4);
  const Plan to = uniform_plan(options, {2, 2}, 1);
  LiveJob boundary(options, from);
  switch_to(boundary, options, to);
  LiveJob overlapped(options, from);
  overlapped.overlap(dag_beside_generation(overlapped, options, to), to);
  EXPECT_EQ(overlapped.plan(), from);
  const StepReport report = overlapped.run_step();
  ASSERT_TRUE(report.transition);
  EXPECT_FALSE(report.transition->failure);
  EXPECT_TRUE(report.transition->verified);
  EXPECT_LE(report.transition->exposed, report.transition->measured);
  EXPECT_EQ(overlapped.plan(), to);
  EXPECT_FALSE(boundary.run_step().transition);
  EXPECT_EQ(overlapped.state_hashes(), boundary.state_hashes());
  boundary.run_step();
  overlapped.run_step();
  EXPECT_EQ(overlapped.state_hashes(), boundary.state_hashes());
}

// Kills a device when it has received what a transition brings it.
std::function<void(const TransitionEvent&)> death_of(DeviceId device) {
  return [device](const TransitionEvent& event) {
    if (event.device == device && event.what == TransitionEvent::What::kCopied) {
      throw DeviceLost(device);
    }
  };
}

TEST_F(LiveJobTest, GoesOnWithoutADeviceThatDiesInATransition) {
  LiveOptions options = tiny_job(/*devices=*/3, /*steps=*/2);
  LiveJob fixed(options, uniform_plan(options, {1, 1}, 3));
  options.on_transition_event = death_of({0, 1});
  LiveJob job(options, uniform_plan(options, {1, 1}, 3));
  job.run_step();
  const auto before = job.state_hashes();
  const auto dag = compile_transition(job.plan(), uniform_plan(options, {2, 1}, 1),
                                      job_spec(options, 0), options.cluster, Calibration());
  ASSERT_TRUE(dag) << dag.error();
  const TransitionReport failed = job.apply(*dag);
  ASSERT_TRUE(failed.failure);
  EXPECT_EQ(failed.failure->lost, std::vector<DeviceId>({{0, 1}}));

  Plan rest = job.plan();
  for (StagePlan& stage : rest.stages) stage.units = {{{0, 0}}, {{0, 2}}};
  const TransitionReport recovered = job.recover(rest);
  EXPECT_FALSE(recovered.failure);
  EXPECT_TRUE(recovered.verified);
  EXPECT_EQ(job.state_hashes(), before);
  EXPECT_FALSE(job.run_step().next_pool.contains({0, 1}));
  fixed.run_step();
  fixed.run_step();
  EXPECT_LT(
      largest_difference(state_of(fixed, "fixed").at("actor"), state_of(job, "job").at("actor")),
      1e-10);
}

TEST_F(LiveJobTest, RepeatsTheStepBesideWhichADeviceDied) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/1);
  LiveJob fixed(options, uniform_plan(options, {1, 1}, 1));
  options.on_transition_event = death_of({0, 1});
  LiveJob job(options, uniform_plan(options, {1, 1}, 2));
  const Plan to = uniform_plan(options, {2, 1}, 1);
  job.overlap(dag_beside_generation(job, options, to), to);
  const StepReport report = job.run_step();
  ASSERT_TRUE(report.transition && report.transition->failure);
  EXPECT_EQ(job.step(), 0) << "the step came to nothing";
  EXPECT_TRUE(job.recover(fixed.plan()).verified);
  job.run_step();
  EXPECT_EQ(job.step(), 1);
  fixed.run_step();
  EXPECT_EQ(job.state_hashes(), fixed.state_hashes());
}

TEST_F(LiveJobTest, SaysWhatNoDeviceHoldsAnyMore) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/1);
  options.on_transition_event = [](const TransitionEvent& event) {
    // The peer is gone before anything could be copied from it.
    if (event.what == TransitionEvent::What::kAllocated) throw DeviceLost({0, 1});
  };
  LiveJob job(options, uniform_plan(options, {2, 1}, 1));
  const auto dag = compile_transition(job.plan(), uniform_plan(options, {1, 1}, 1),
                                      job_spec(options, 0), options.cluster, Calibration());
  ASSERT_TRUE(dag) << dag.error();
  ASSERT_TRUE(job.apply(*dag).failure);
  try {
    job.recover(uniform_plan(options, {1, 1}, 1));
    FAIL() << "half of the state came from nowhere";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_NE(std::string(error.what()).find("actor/training: no unit holds"), std::string::npos);
  }
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
  for (const auto& [part, tensors] : state_of(half, "half")) {
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
  no_reference.reference.reset();
  EXPECT_NE(message_of(no_reference).find("needs a reference"), std::string::npos);
  LiveOptions no_critic = tiny_job(1, 1);
  no_critic.critic.reset();
  EXPECT_NE(message_of(no_critic).find("needs a critic"), std::string::npos);
  LiveOptions idle_critic = tiny_job(1, 1);
  idle_critic.ppo.advantage.estimator = AdvantageEstimator::kRloo;
  EXPECT_NE(message_of(idle_critic).find("rloo has no use for a critic"), std::string::npos);
  idle_critic.critic.reset();
  EXPECT_EQ(job_spec(idle_critic, 0).workflow.algorithm, "rloo");
  LiveOptions too_long = tiny_job(1, 1);
  too_long.response_length = {{{0, 5000}}};
  EXPECT_NE(message_of(too_long).find("max_position_embeddings"), std::string::npos);
}

}  // namespace
}  // namespace nereus
