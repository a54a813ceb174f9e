// The jobs and plans of the paper's figures.
#pragma once

#include <span>

#include "nereus/core/cost/calibration.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus::bench {

// The shapes of Llama-3.2-1B and -3B, Llama-3.1-8B and Llama-3.3-70B.
ModelSpec llama_1b();
ModelSpec llama_3b();
ModelSpec llama_8b();
ModelSpec llama_70b();

// PPO with four models of one shape in bf16; a trained one is 14 bytes a parameter with its fp32
// master copy and moments.
JobSpec ppo_job(const ModelSpec& spec);

// What transfers reached on 2 × H200: NCCL sends of 4 GiB at 370 of 450 GB/s. Links between hosts
// are taken to do as well.
Calibration measured_calibration();

// Unit after unit on `devices`, in their order; the last devices.size() % layout.devices() stay
// free.
StagePlan stage_on(ModelStage model_stage, Layout layout, std::span<const DeviceId> devices);
// Sorted by model-stage, as a plan wants it.
Plan plan_of(std::vector<StagePlan> stages);

// `to` with each unit on those of the devices that already hold most of what it needs.
Plan placed(const Plan& from, const Plan& to, const JobSpec& job, const Cluster& cluster);

}  // namespace nereus::bench
