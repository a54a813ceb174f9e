// A job that changes its plan between steps, beside them, or because a device died, trains what a
// job trains that never does.
#include <gtest/gtest.h>

#include "nereus/core/transition/compile.h"
#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::expect_transitions_change_nothing;
using testing::largest_difference;
using testing::state_of;
using testing::switch_to;
using testing::tiny_job;
using testing::uniform_plan;

TEST(PlanChanges, FiveTransitionsChangeNothing) {
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
TEST(PlanChanges, TransitionsChangeNothingOfGrpo) {
  const std::filesystem::path assets = std::string(NEREUS_SOURCE_DIR) + "/assets";
  LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/4);
  options.models[Role::kActor] = {assets / "stories260K"};
  options.models[Role::kReference] = options.models[Role::kActor];
  options.models.erase(Role::kCritic);
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
  EXPECT_EQ(state_of(job).size(), 1u) << "the actor alone is trained";
}

// The greedy responses, too, are those of the weights and not of the layout.
TEST(PlanChanges, TransitionsChangeNothingOfRemax) {
  LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/4);
  options.models.erase(Role::kCritic);
  options.ppo.advantage.estimator = AdvantageEstimator::kRemax;
  expect_transitions_change_nothing(
      options,
      {uniform_plan(options, {1, 1}, 4), uniform_plan(options, {2, 1}, 2),
       uniform_plan(options, {1, 2}, 2), uniform_plan(options, {4, 1}, 1)},
      {"actor/pg_loss", "critic/rewards/mean", "critic/advantages/max", "critic/baseline/mean",
       "actor/grad_norm", "actor/ref_kl"});
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

TEST(PlanChanges, OverlappedTransitionsEndInTheSameBytes) {
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

TEST(PlanChanges, GoesOnWithoutADeviceThatDiesInATransition) {
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
  EXPECT_LT(largest_difference(state_of(fixed).at("actor"), state_of(job).at("actor")), 1e-10);
}

TEST(PlanChanges, RepeatsTheStepBesideWhichADeviceDied) {
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

TEST(PlanChanges, SaysWhatNoDeviceHoldsAnyMore) {
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

}  // namespace
}  // namespace nereus
