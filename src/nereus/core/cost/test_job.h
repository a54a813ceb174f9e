// A small PPO job for the tests of cost, planner and controller: the shape of stories260K.
#pragma once

#include "nereus/core/workflow/job_spec.h"

namespace nereus {

inline ModelSpec stories_spec() {
  ModelSpec spec;
  spec.vocab_size = 512;
  spec.hidden_size = 64;
  spec.intermediate_size = 172;
  spec.num_layers = 5;
  spec.num_heads = 8;
  spec.num_kv_heads = 4;
  spec.head_dim = 8;
  spec.max_position = 512;
  spec.tie_word_embeddings = true;
  return spec;
}

// 64 samples of 8 prompt tokens and up to `response` tokens, two mini-batches.
inline JobSpec stories_job(int64_t response = 32) {
  JobSpec job;
  job.workflow = ppo_workflow(true);
  job.models[Role::kActor] = {stories_spec(), DType::kFloat32};
  job.models[Role::kReference] = {stories_spec(), DType::kFloat32};
  job.models[Role::kCritic] = {as_critic(stories_spec()), DType::kFloat32};
  job.workload = {.samples = 64,
                  .prompt_tokens = 8,
                  .response_mean = static_cast<double>(response),
                  .response_limit = response,
                  .mini_batch = 32,
                  .epochs = 1};
  return job;
}

// Llama-3.1-8B with bf16 weights, 512 samples.
inline JobSpec large_job(int64_t response = 1024) {
  ModelSpec spec;
  spec.vocab_size = 128256;
  spec.hidden_size = 4096;
  spec.intermediate_size = 14336;
  spec.num_layers = 32;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_position = 131072;
  JobSpec job = stories_job(response);
  job.models[Role::kActor] = {spec, DType::kBFloat16};
  job.models[Role::kReference] = {spec, DType::kBFloat16};
  job.models[Role::kCritic] = {as_critic(spec), DType::kBFloat16};
  job.workload.samples = 512;
  job.workload.prompt_tokens = 512;
  job.workload.mini_batch = 128;
  return job;
}

// `layout` with `dp` units on the first devices of one host.
inline StagePlan stage_on_host(ModelStage model_stage, Layout layout, int dp, int micro_batch,
                               bool recompute = false) {
  StagePlan stage{.model_stage = model_stage,
                  .layout = layout,
                  .micro_batch = micro_batch,
                  .recompute = recompute};
  for (int unit = 0; unit < dp; ++unit) {
    std::vector<DeviceId>& devices = stage.units.emplace_back();
    for (int index = 0; index < layout.devices(); ++index) {
      devices.push_back({0, unit * layout.devices() + index});
    }
  }
  return stage;
}

// Every model-stage of the job under the same layout.
inline Plan uniform_plan(const JobSpec& job, Layout layout, int dp, int micro_batch,
                         bool recompute = false) {
  Plan plan;
  for (ModelStage model_stage : model_stages(job.workflow)) {
    const bool trained = model_stage.stage == Stage::kTraining;
    plan.stages.push_back(
        stage_on_host(model_stage, layout, dp, micro_batch, recompute && trained));
  }
  return plan;
}

}  // namespace nereus
