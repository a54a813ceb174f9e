#include "nereus/app/compare/frameworks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "nereus/core/base/error.h"
#include "nereus/core/cost/test_job.h"

namespace nereus {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ForeignSetting translated(const std::string& text) {
  const ForeignKeys keys = read_foreign_keys(text);
  return translate(recognise(keys), keys);
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    return error.what();
  }
  return "accepted";
}

std::string refusal_of(const std::string& text) {
  return refusal([&] { translated(text); });
}

DevicePool pool_of(int hosts) { return all_devices(named_cluster("h200x8", hosts)); }

Plan plan_of(const std::string& text, int hosts = 2) {
  return to_plan(translated(text), large_job(), pool_of(hosts));
}

const std::string kMegatron = R"(
    actor_rollout_ref.actor.strategy=megatron
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
    actor_rollout_ref.rollout.tensor_model_parallel_size=2
    actor_rollout_ref.ref.megatron.tensor_model_parallel_size=8
    critic.megatron.tensor_model_parallel_size=4
    trainer.n_gpus_per_node=8 trainer.nnodes=2)";

TEST(Frameworks, VerlMegatronIsAPlan) {
  const Plan plan = plan_of(kMegatron);
  // The distributed optimizer cuts optimizer state over all data-parallel ranks.
  EXPECT_EQ(at(plan, kActorTraining).layout, (Layout{.tp = 4, .pp = 2, .zero = 2}));
  EXPECT_EQ(at(plan, kActorTraining).dp(), 2);
  EXPECT_EQ(at(plan, kActorTraining).micro_batch, 2);
  EXPECT_EQ(at(plan, kCriticTraining).layout, (Layout{.tp = 4, .pp = 1, .zero = 4}));
  EXPECT_EQ(at(plan, kReferenceInference).layout, (Layout{.tp = 8}));
  EXPECT_EQ(at(plan, kActorGeneration).units.size(), 8u);
  EXPECT_EQ(at(plan, kActorGeneration).layout, (Layout{.tp = 2}));
  const Execution execution = as_run_by(translated(kMegatron), large_job()).execution;
  EXPECT_TRUE(execution.sequence_parallel && execution.paged_cache);
}

TEST(Frameworks, VerlRewardModelRunsWhereTheSettingSays) {
  JobSpec job = large_job();
  job.workflow = ppo_workflow(/*with_reference=*/true, /*with_reward_model=*/true);
  job.models[Role::kReward] = job.models.at(Role::kCritic);
  const std::string reward =
      kMegatron +
      " reward_model.enable=True reward_model.model.path=m reward_model.max_length=2048 "
      "reward_model.megatron.tensor_model_parallel_size=2 reward_model.micro_batch_size_per_gpu=3 ";
  const ForeignSetting setting = translated(reward);
  EXPECT_THAT(setting.unknown, IsEmpty());
  EXPECT_THAT(setting.approximated, Contains(Field(&KeyNote::key, "reward_model.enable")));
  const StagePlan shared = at(to_plan(setting, job, pool_of(2)), kRewardInference);
  EXPECT_EQ(shared.layout, (Layout{.tp = 2}));
  EXPECT_EQ(shared.micro_batch, 3);
  EXPECT_EQ(shared.dp(), 8);

  const std::string own =
      "reward_model.enable_resource_pool=True reward_model.nnodes=1 reward_model.n_gpus_per_node=8";
  const ForeignSetting apart = translated(reward + own);
  EXPECT_THAT(apart.groups, ElementsAre(16, 8));
  const StagePlan behind = at(to_plan(apart, job, pool_of(3)), kRewardInference);
  EXPECT_EQ(behind.units.front().front(), (DeviceId{2, 0}));
  EXPECT_EQ(behind.dp(), 4);
  EXPECT_THAT(translated(kMegatron + " reward_model.megatron.tensor_model_parallel_sise=2").unknown,
              ElementsAre(Field(&KeyNote::note, "did you mean tensor_model_parallel_size?")));
}

TEST(Frameworks, OptimizerShardsAreRanksOfOneUnit) {
  const std::string off = " actor_rollout_ref.actor.megatron.use_distributed_optimizer=False";
  const StagePlan whole = at(plan_of(kMegatron + off), kActorTraining);
  const StagePlan sharded = at(plan_of(kMegatron), kActorTraining);
  ASSERT_EQ(whole.units.size(), 2u);
  std::vector<DeviceId> joined = whole.units[0];
  joined.insert(joined.end(), whole.units[1].begin(), whole.units[1].end());
  EXPECT_THAT(sharded.units, ElementsAre(joined));
}

TEST(Frameworks, VerlFsdpIsApproximatedAndSaysSo) {
  const std::string text =
      "actor_rollout_ref.actor.fsdp_config.param_offload=True trainer.n_gpus_per_node=8 "
      "actor_rollout_ref.actor.fsdp_config.fsdp_size=4 "
      "actor_rollout_ref.actor.use_dynamic_bsz=True "
      "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4608";
  const ForeignSetting setting = translated(text);
  EXPECT_THAT(setting.approximated, Contains(Field(&KeyNote::note, HasSubstr("upper bound"))));
  EXPECT_THAT(setting.approximated,
              Contains(Field(&KeyNote::key, "actor_rollout_ref.actor.use_dynamic_bsz")));
  const Plan plan = plan_of(text);
  EXPECT_EQ(at(plan, kActorTraining).layout, (Layout{.zero = 4}));
  EXPECT_EQ(at(plan, kActorTraining).units.size(), 2u);
  EXPECT_TRUE(at(plan, kActorTraining).offload && at(plan, kActorTraining).recompute);
  // 4608 tokens hold three of the longest sequences of 512 + 1024 tokens.
  EXPECT_EQ(at(plan, kActorTraining).micro_batch, 3);
}

TEST(Frameworks, NemoRlReadsReferencesAndDevicesOfGeneration) {
  const std::string yaml = R"(
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 8, async_grpo: {enabled: true}}
policy:
  train_global_batch_size: 512
  train_micro_batch_size: 2
  logprob_batch_size: ${policy.train_micro_batch_size}
  max_total_sequence_length: 4096
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}
  generation:
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg: {tensor_parallel_size: 4}
    colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}
cluster: {gpus_per_node: 8, num_nodes: 3}
)";
  const ForeignSetting setting = translated(yaml);
  EXPECT_THAT(setting.groups, ElementsAre(16, 8));
  EXPECT_TRUE(setting.asynchronous);
  const Plan plan = to_plan(setting, large_job(), pool_of(3));
  EXPECT_EQ(at(plan, kActorTraining).layout, (Layout{.tp = 2, .pp = 2, .zero = 4}));
  EXPECT_EQ(at(plan, kReferenceInference).micro_batch, 2);
  ASSERT_EQ(at(plan, kActorGeneration).units.size(), 2u);
  EXPECT_EQ(at(plan, kActorGeneration).units[0].front(), (DeviceId{2, 0}));

  Config config;
  config.data.max_prompt_length = 96;
  EXPECT_THAT(
      job_overrides(setting, config),
      ElementsAre("algorithm.adv_estimator=grpo", "data.train_batch_size=64",
                  "actor_rollout_ref.rollout.n=8", "actor_rollout_ref.actor.ppo_mini_batch_size=64",
                  "data.max_response_length=4000"));
}

TEST(Frameworks, OpenRlhfReadsOldAndNewNamesAlike) {
  const ForeignSetting old_names = translated(
      "--actor_num_nodes 1 --actor_num_gpus_per_node 8 --ref_num_nodes 1 --ref_num_gpus_per_node 8 "
      "--vllm_num_engines 4 --vllm_tensor_parallel_size 2 --colocate_all_models --zero_stage 3 "
      "--micro_train_batch_size 4 --rollout_batch_size 256 --train_batch_size 128 "
      "--gradient_checkpointing --vllm_enable_sleep");
  const ForeignSetting new_names = translated(
      "--actor.num_nodes 1 --actor.num_gpus_per_node 8 --ref.num_nodes 1 --ref.num_gpus_per_node 8 "
      "--vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.colocate_all --ds.zero_stage 3 "
      "--train.micro_batch_size 4 --rollout.batch_size 256 --train.batch_size 128 "
      "--actor.gradient_checkpointing_enable --vllm.enable_sleep");
  const JobSpec job = large_job();
  EXPECT_EQ(to_plan(old_names, job, pool_of(1)), to_plan(new_names, job, pool_of(1)));
  EXPECT_EQ(job_overrides(old_names, {}), job_overrides(new_names, {}));
  EXPECT_THAT(old_names.unknown, IsEmpty());
  const Plan plan = to_plan(new_names, job, pool_of(1));
  EXPECT_EQ(at(plan, kActorTraining).layout, (Layout{.zero = 8}));
  EXPECT_EQ(at(plan, kActorTraining).micro_batch, 4);
  EXPECT_TRUE(at(plan, kActorTraining).recompute && !at(plan, kReferenceInference).recompute);
  EXPECT_TRUE(at(plan, kActorGeneration).offload);
  EXPECT_EQ(at(plan, kActorGeneration).units.size(), 4u);
}

TEST(Frameworks, OpenRlhfPlacesWhatIsNotColocatedSideBySide) {
  const ForeignSetting setting = translated(
      "--actor.num_gpus_per_node 4 --critic.num_gpus_per_node 2 --ref.num_gpus_per_node 4 "
      "--train.colocate_actor_ref --vllm.num_engines 1 --vllm.tensor_parallel_size 2");
  EXPECT_THAT(setting.groups, ElementsAre(4, 2, 2));
  const Plan plan = to_plan(setting, large_job(), pool_of(1));
  EXPECT_EQ(at(plan, kReferenceInference).units.front().front(), (DeviceId{0, 0}));
  EXPECT_EQ(at(plan, kCriticTraining).units.front().front(), (DeviceId{0, 4}));
  EXPECT_EQ(at(plan, kActorGeneration).units.front().front(), (DeviceId{0, 6}));
}

TEST(Frameworks, EveryKeyIsAccountedFor) {
  const ForeignSetting setting =
      translated(kMegatron +
                 " actor_rollout_ref.actor.megatron.tensor_model_parallel_sise=8 a.b=c "
                 "actor_rollout_ref.actor.optim.lr=1e-6");
  EXPECT_THAT(setting.unknown,
              ElementsAre(KeyNote{"a.b", ""},
                          KeyNote{"actor_rollout_ref.actor.megatron.tensor_model_parallel_sise",
                                  "did you mean tensor_model_parallel_size?"}));
  EXPECT_THAT(setting.ignored,
              ElementsAre(Field(&KeyNote::key, "actor_rollout_ref.actor.optim.lr")));
}

TEST(Frameworks, ValidationIsNoPartOfAStep) {
  const ForeignSetting setting = translated(
      kMegatron +
      " data.val_files=v.parquet trainer.test_freq=5 trainer.val_before_train=False "
      "actor_rollout_ref.rollout.val_kwargs.n=4 actor_rollout_ref.rollout.val_kwargs.top_p=0.7");
  EXPECT_THAT(setting.unknown, IsEmpty());
  EXPECT_EQ(setting.ignored.size(), 5);
}

TEST(Frameworks, WhatPlansCannotSayIsRefused) {
  EXPECT_THAT(refusal_of("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"),
              HasSubstr("ulysses_sequence_parallel_size = 2: plans do not cut sequences"));
  EXPECT_THAT(refusal_of(kMegatron + " actor_rollout_ref.actor.megatron.context_parallel_size=2"),
              HasSubstr("context_parallel_size = 2"));
  EXPECT_THAT(refusal_of("policy.dtensor_cfg.context_parallel_size=4"),
              HasSubstr("policy.dtensor_cfg.context_parallel_size = 4"));
  EXPECT_THAT(refusal_of("--vllm.num_engines 1 --ds.ring_attn_size 2"),
              HasSubstr("--ds.ring_attn_size = 2"));
  EXPECT_THAT(refusal_of("--train.colocate_all --vllm.num_engines 3 --vllm.tensor_parallel_size 2"),
              HasSubstr("= 6, but the actor has 8"));
}

TEST(Frameworks, BadValuesNameTheirKeys) {
  EXPECT_THAT(refusal_of("actor_rollout_ref.rollout.tensor_model_parallel_size=two"),
              HasSubstr("tensor_model_parallel_size = two: must be a whole number"));
  EXPECT_THAT(refusal_of("actor_rollout_ref.rollout.tensor_model_parallel_size=0"),
              HasSubstr("tensor_model_parallel_size = 0"));
  EXPECT_THAT(refusal_of("policy.x=1 cluster.num_nodes=$NODES"), HasSubstr("write its value"));
  EXPECT_THAT(refusal_of("policy.dtensor_cfg.cpu_offload=perhaps"), HasSubstr("true or false"));
  EXPECT_THAT(refusal_of("learning_rate=1"), HasSubstr("--compare-format"));
  EXPECT_THAT(refusal([] { parse_framework("trl"); }), HasSubstr("openrlhf"));
}

TEST(Frameworks, SettingsThatDoNotSuitTheDevicesAreRefused) {
  EXPECT_THAT(refusal([] { plan_of(kMegatron, 1); }), HasSubstr("takes 16 devices, there are 8"));
  EXPECT_THAT(refusal([] { plan_of(kMegatron + " trainer.nnodes=1 trainer.n_gpus_per_node=12"); }),
              HasSubstr("12 devices are no multiple of tp4·pp2"));
  EXPECT_THAT(refusal([] {
                plan_of(kMegatron + " actor_rollout_ref.rollout.tensor_model_parallel_size=16");
              }),
              HasSubstr("which tensor parallelism must not leave"));
}

// Whatever degrees are written, the plan uses all devices once in each model-stage.
TEST(Frameworks, PlansUseTheDevicesOfTheSetting) {
  EXPECT_TRUE(rc::check([] {
    const auto degree = [](int most) { return 1 << *rc::gen::inRange(0, most); };
    const std::string actor = "actor_rollout_ref.actor.megatron.";
    const int tp = degree(4), pp = degree(2), rollout = degree(4);
    const Plan plan =
        plan_of(actor + "tensor_model_parallel_size=" + std::to_string(tp) + " " + actor +
                "pipeline_model_parallel_size=" + std::to_string(pp) +
                " trainer.nnodes=2 actor_rollout_ref.rollout.tensor_model_parallel_size=" +
                std::to_string(rollout));
    for (const StagePlan& stage : plan.stages) {
      RC_ASSERT(devices_of({{stage}}).size() == 16);
      RC_ASSERT(stage.dp() * stage.layout.tp * stage.layout.pp == 16);
    }
    RC_ASSERT(at(plan, kActorTraining).layout.tp == tp);
    RC_ASSERT(at(plan, kActorTraining).layout.pp == pp);
    RC_ASSERT(at(plan, kActorGeneration).layout.tp == rollout);
  }));
}

}  // namespace
}  // namespace nereus
