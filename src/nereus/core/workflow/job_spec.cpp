#include "nereus/core/workflow/job_spec.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "nereus/core/base/text.h"

namespace nereus {

namespace {

std::string listing(const std::vector<ModelStage>& stages) {
  std::vector<std::string> names;
  for (ModelStage stage : stages) names.push_back(to_string(stage));
  return join(names, ", ");
}

}  // namespace

JobSpec seen_by(const WorkflowNode& node, JobSpec job) {
  if (is_of_baselines(node)) job.workload.samples /= job.workload.samples_per_prompt;
  return job;
}

std::vector<ModelSpec> models_of(const Plan& plan, const JobSpec& job) {
  std::vector<ModelSpec> models;
  for (const StagePlan& stage : plan.stages) {
    const auto use = job.models.find(stage.model_stage.role);
    if (use == job.models.end()) {
      throw Error(ErrorCode::kInvalidInput, to_string(stage.model_stage) + ": the job has no " +
                                                to_string(stage.model_stage.role) + " model");
    }
    models.push_back(use->second.spec);
  }
  return models;
}

void verify(const Plan& plan, const DevicePool& pool, const JobSpec& job) {
  verify(plan, pool, models_of(plan, job));
  std::vector<ModelStage> placed;
  for (const StagePlan& stage : plan.stages) placed.push_back(stage.model_stage);
  const std::vector<ModelStage> needed = model_stages(job.workflow);
  if (placed != needed) {
    throw Error(ErrorCode::kInvalidInput, "the plan places " + listing(placed) +
                                              "; the workflow needs exactly " + listing(needed));
  }
  for (const StagePlan& stage : plan.stages) {
    if (stage.micro_batch > job.workload.samples) {
      throw Error(ErrorCode::kInvalidInput,
                  to_string(stage.model_stage) + ": micro_batch " +
                      std::to_string(stage.micro_batch) + " is more than the " +
                      std::to_string(job.workload.samples) + " samples of a step");
    }
    if (int64_t{stage.waves} * stage.dp() > job.workload.samples) {
      throw Error(ErrorCode::kInvalidInput,
                  to_string(stage.model_stage) + ": " + std::to_string(stage.waves) +
                      " waves on each of " + std::to_string(stage.dp()) +
                      " units are more than the " + std::to_string(job.workload.samples) +
                      " samples of a step");
    }
  }
}

void to_json(Json& j, const Workload& workload) {
  j = {{"samples", workload.samples},
       {"prompt_tokens", workload.prompt_tokens},
       {"response_mean", workload.response_mean},
       {"response_limit", workload.response_limit},
       {"mini_batch", workload.mini_batch},
       {"epochs", workload.epochs}};
  if (workload.samples_per_prompt != 1) j["samples_per_prompt"] = workload.samples_per_prompt;
  if (!workload.response_quantiles.empty()) j["response_quantiles"] = workload.response_quantiles;
}

void from_json(const Json& j, Workload& workload) {
  workload.samples = require<int64_t>(j, "samples", "workload");
  workload.prompt_tokens = require<int64_t>(j, "prompt_tokens", "workload");
  workload.response_mean = require<double>(j, "response_mean", "workload");
  workload.response_limit = require<int64_t>(j, "response_limit", "workload");
  workload.mini_batch = require<int64_t>(j, "mini_batch", "workload");
  workload.epochs = optional(j, "epochs", 1, "workload");
  workload.samples_per_prompt = optional<int64_t>(j, "samples_per_prompt", 1, "workload");
  workload.response_quantiles =
      optional(j, "response_quantiles", std::vector<double>(), "workload");
  const std::vector<double>& lengths = workload.response_quantiles;
  const bool usable = lengths.size() > 1 && std::ranges::is_sorted(lengths) &&
                      lengths.front() >= 0 && std::isfinite(lengths.back()) && lengths.back() > 0;
  if (!lengths.empty() && !usable) {
    throw Error(ErrorCode::kInvalidInput,
                "workload: response_quantiles must be at least two ascending lengths, not " +
                    Json(lengths).dump());
  }
}

}  // namespace nereus
