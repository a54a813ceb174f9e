#include "common/jobs.h"

#include <algorithm>

#include "nereus/core/state/residency.h"

namespace nereus::bench {

ModelSpec llama_8b() {
  return {.vocab_size = 128256,
          .hidden_size = 4096,
          .intermediate_size = 14336,
          .num_layers = 32,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .max_position = 131072,
          .rope_theta = 500000};
}

ModelSpec llama_3b() {
  ModelSpec spec = llama_8b();
  spec.hidden_size = 3072;
  spec.intermediate_size = 8192;
  spec.num_layers = 28;
  spec.num_heads = 24;
  spec.tie_word_embeddings = true;
  return spec;
}

ModelSpec llama_1b() {
  ModelSpec spec = llama_3b();
  spec.hidden_size = 2048;
  spec.num_layers = 16;
  spec.num_heads = 32;
  spec.head_dim = 64;
  return spec;
}

ModelSpec llama_70b() {
  ModelSpec spec = llama_8b();
  spec.hidden_size = 8192;
  spec.intermediate_size = 28672;
  spec.num_layers = 80;
  spec.num_heads = 64;
  return spec;
}

JobSpec ppo_job(const ModelSpec& spec) {
  JobSpec job;
  job.workflow = ppo_workflow(/*with_reference=*/true);
  job.models[Role::kActor] = {spec, DType::kBFloat16};
  job.models[Role::kCritic] = {as_critic(spec), DType::kBFloat16};
  job.models[Role::kReference] = {spec, DType::kBFloat16};
  job.workload = {.samples = 1024,
                  .prompt_tokens = 1024,
                  .response_mean = 1024,
                  .response_limit = 2048,
                  .mini_batch = 256};
  return job;
}

Calibration measured_calibration() {
  Calibration calibration;
  calibration.observe(OpClass::kTransfer, Seconds(370), Seconds(450));
  return calibration;
}

StagePlan stage_on(ModelStage model_stage, Layout layout, std::span<const DeviceId> devices) {
  StagePlan stage{.model_stage = model_stage, .layout = layout};
  const size_t size = layout.devices();
  for (; devices.size() >= size; devices = devices.subspan(size)) {
    stage.units.emplace_back(devices.begin(), devices.begin() + ptrdiff_t(size));
  }
  return stage;
}

Plan plan_of(std::vector<StagePlan> stages) {
  std::ranges::sort(stages, {}, &StagePlan::model_stage);
  return {std::move(stages)};
}

Plan placed(const Plan& from, const Plan& to, const JobSpec& job, const Cluster& cluster) {
  std::map<ModelStage, StateSchema> schemas;
  for (const StagePlan& stage : to.stages) {
    schemas[stage.model_stage] =
        state_schema(job.models.at(stage.model_stage.role), stage.model_stage);
  }
  return relabel_for_residency(from, to, schemas, all_devices(cluster));
}

}  // namespace nereus::bench
