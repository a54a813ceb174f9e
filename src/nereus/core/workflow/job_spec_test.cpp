#include "nereus/core/workflow/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nereus {
namespace {

using ::testing::HasSubstr;

ModelSpec tiny() {
  return {.vocab_size = 512,
          .hidden_size = 64,
          .intermediate_size = 172,
          .num_layers = 5,
          .num_heads = 8,
          .num_kv_heads = 4,
          .head_dim = 8};
}

JobSpec ppo_job() {
  return {.workflow = ppo_workflow(true),
          .models = {{Role::kActor, {tiny()}},
                     {Role::kCritic, {as_critic(tiny())}},
                     {Role::kReference, {tiny()}}},
          .workload = {.samples = 64,
                       .prompt_tokens = 16,
                       .response_mean = 40.5,
                       .response_limit = 128,
                       .mini_batch = 32,
                       .epochs = 2}};
}

// Every model-stage of the job whole on each of two devices.
Plan plan_for(const JobSpec& job) {
  Plan plan;
  for (ModelStage model_stage : model_stages(job.workflow)) {
    plan.stages.push_back({.model_stage = model_stage, .units = {{{0, 0}}, {{0, 1}}}});
  }
  return plan;
}

std::string refusal(const Plan& plan, const JobSpec& job) {
  try {
    verify(plan, DevicePool({{0, 0}, {0, 1}}), job);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    return error.what();
  }
  return "accepted";
}

TEST(JobSpec, ModelsFollowTheStages) {
  const JobSpec job = ppo_job();
  const std::vector<ModelSpec> models = models_of(plan_for(job), job);
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0], tiny());
  EXPECT_EQ(models[2].head, Head::kScalar);
}

TEST(JobSpec, VerifyAcceptsAWholePlanOnly) {
  JobSpec job = ppo_job();
  Plan plan = plan_for(job);
  EXPECT_EQ(refusal(plan, job), "accepted");
  plan.stages[1].micro_batch = 65;
  EXPECT_THAT(refusal(plan, job),
              HasSubstr("actor/training: micro_batch 65 is more than the 64 samples"));
  plan.stages.pop_back();
  EXPECT_EQ(refusal(plan, job),
            "the plan places actor/generation, actor/training, critic/training; the workflow needs "
            "exactly actor/generation, actor/training, critic/training, reference/inference");
  job.models.erase(Role::kCritic);
  EXPECT_THAT(refusal(plan, job), HasSubstr("critic/training: the job has no critic model"));
}

TEST(JobSpec, ARewardModelMustBePlaced) {
  JobSpec job = ppo_job();
  const Plan without = plan_for(job);
  job.workflow = ppo_workflow(true, /*with_reward_model=*/true);
  EXPECT_THAT(refusal(without, job), HasSubstr("needs exactly actor/generation, actor/training, "
                                               "critic/training, reference/inference, "
                                               "reward/inference"));
  EXPECT_THAT(refusal(plan_for(job), job), HasSubstr("the job has no reward model"));
  job.models[Role::kReward] = {as_critic(tiny())};
  EXPECT_EQ(refusal(plan_for(job), job), "accepted");
  EXPECT_EQ(models_of(plan_for(job), job).back().head, Head::kScalar);
}

TEST(JobSpec, VerifyIncludesThePlansOwnRules) {
  const JobSpec job = ppo_job();
  Plan plan = plan_for(job);
  plan.stages[0].units[0][0] = {3, 0};
  EXPECT_THAT(refusal(plan, job), HasSubstr("device 3:0 is not available; available: 0:0, 0:1"));
}

TEST(JobSpec, WorkloadJsonRoundTrip) {
  Workload workload = ppo_job().workload;
  EXPECT_EQ(Json::parse(Json(workload).dump()).get<Workload>(), workload);
  workload.response_quantiles = {3, 40, 100};
  EXPECT_EQ(Json::parse(Json(workload).dump()).get<Workload>(), workload);
  EXPECT_THROW(Json::object().get<Workload>(), Error);
  for (const std::vector<double>& bad : {std::vector{5.0}, {5, 4}, {-1, 4}, {0, 0}}) {
    Json j = workload;
    j["response_quantiles"] = bad;
    EXPECT_THROW(j.get<Workload>(), Error) << j;
  }
}

}  // namespace
}  // namespace nereus
