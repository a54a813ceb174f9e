#include "nereus/app/compare/frameworks.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "nereus/app/compare/foreign_reader.h"
#include "nereus/core/base/error.h"
#include "nereus/core/planner/placement.h"
#include "nereus/core/planner/planner.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidInput, message);
}

constexpr std::array kFrameworks = {
    std::pair{Framework::kVerl, "verl"},
    std::pair{Framework::kNemoRl, "nemo-rl"},
    std::pair{Framework::kOpenRlhf, "openrlhf"},
};

// Beginnings of keys that only one framework has.
constexpr std::array kSigns = {
    std::pair{Framework::kVerl, "actor_rollout_ref."}, std::pair{Framework::kNemoRl, "policy."},
    std::pair{Framework::kNemoRl, "cluster."},         std::pair{Framework::kOpenRlhf, "--vllm"},
    std::pair{Framework::kOpenRlhf, "--actor"},        std::pair{Framework::kOpenRlhf, "--ds"},
};

int sequences_of(const ForeignMicroBatch& micro_batch, int dp, const Workload& workload) {
  int64_t sequences = micro_batch.per_rank.value_or(1);
  if (micro_batch.of_all) sequences = *micro_batch.of_all / dp;
  if (micro_batch.tokens) {
    sequences = *micro_batch.tokens / (workload.prompt_tokens + workload.response_limit);
  }
  const int64_t most = std::max<int64_t>(1, workload.samples / dp);
  return static_cast<int>(std::clamp<int64_t>(sequences, 1, most));
}

DevicePool devices_of_group(const ForeignSetting& setting, size_t group, const DevicePool& pool) {
  const DeviceLine line(pool);
  const auto first =
      line.devices().begin() +
      std::accumulate(setting.groups.begin(), setting.groups.begin() + long(group), 0);
  return DevicePool(std::vector<DeviceId>(first, first + setting.groups[group]));
}

// Joins units whose ranks share the optimizer state: their devices follow one another in rank
// order.
void shard_optimizer(StagePlan& stage, int shards) {
  const int dp = static_cast<int>(stage.units.size());
  const int zero = shards == 0 ? dp : shards;
  if (dp % zero != 0) {
    refuse(to_string(stage.model_stage) + ": " + std::to_string(dp) +
           " data-parallel ranks cannot be cut into groups of " + std::to_string(zero));
  }
  std::vector<std::vector<DeviceId>> units;
  for (int i = 0; i < dp; ++i) {
    if (i % zero == 0) units.emplace_back();
    units.back().insert(units.back().end(), stage.units[i].begin(), stage.units[i].end());
  }
  stage.units = std::move(units);
  stage.layout.zero = zero;
}

StagePlan placed(ModelStage model_stage, const ForeignSetting& setting, const JobSpec& job,
                 const DevicePool& pool) {
  const auto found = setting.stages.find(model_stage);
  if (found == setting.stages.end()) {
    refuse("a setting of " + to_string(setting.framework) + " says nothing about " +
           to_string(model_stage));
  }
  const ForeignStage& stage = found->second;
  const Layout layout{stage.tp, stage.pp};
  const DevicePool devices = devices_of_group(setting, stage.group, pool);
  const int count = static_cast<int>(devices.size());
  if (count % layout.devices() != 0) {
    refuse(to_string(model_stage) + ": " + std::to_string(count) + " devices are no multiple of " +
           to_string(layout));
  }
  const int dp = count / layout.devices();
  if (most_units(layout, devices) < dp) {
    refuse(to_string(model_stage) + ": " + to_string(layout) +
           " does not divide the devices of each host, which tensor parallelism must not leave");
  }
  const int micro_batch = sequences_of(stage.micro_batch, dp, job.workload);
  StagePlan plan = place(model_stage, layout, dp, micro_batch, stage.recompute, devices);
  plan.offload = stage.offload;
  shard_optimizer(plan, stage.shards);
  return plan;
}

}  // namespace

std::string to_string(Framework framework) {
  return std::ranges::find(kFrameworks, framework, [](const auto& f) { return f.first; })->second;
}

Framework parse_framework(const std::string& text) {
  for (const auto& [framework, name] : kFrameworks) {
    if (text == name) return framework;
  }
  refuse("unknown framework \"" + text + "\": write verl, nemo-rl or openrlhf");
}

Framework recognise(const ForeignKeys& keys) {
  for (const auto& [framework, sign] : kSigns) {
    const auto first = keys.lower_bound(sign);
    if (first != keys.end() && first->first.starts_with(sign)) return framework;
  }
  refuse(
      "this is no setting of verl (actor_rollout_ref.…=…), NeMo-RL (policy.…) or OpenRLHF "
      "(--actor… --vllm…); if it is one, name it with --compare-format");
}

int ForeignSetting::devices() const { return std::accumulate(groups.begin(), groups.end(), 0); }

ForeignSetting translate(Framework framework, const ForeignKeys& keys) {
  const auto translated = [&] {
    switch (framework) {
      case Framework::kVerl:
        return translate_verl(keys);
      case Framework::kNemoRl:
        return translate_nemo_rl(keys);
      case Framework::kOpenRlhf:
        break;
    }
    return translate_openrlhf(keys);
  };
  ForeignSetting setting = translated();
  setting.framework = framework;
  setting.execution.paged_cache = true;  // all generate with vLLM or alike
  return setting;
}

std::vector<std::string> job_overrides(const ForeignSetting& setting, const Config& config) {
  const ForeignJob& job = setting.job;
  std::vector<std::string> overrides;
  const auto set = [&](const std::string& key, std::optional<int64_t> value) {
    if (value) overrides.push_back(key + "=" + std::to_string(*value));
  };
  const int64_t n = job.samples_per_prompt.value_or(config.rollout.n);
  std::optional<int64_t> mini_batch = job.mini_batch_prompts;
  if (job.mini_batch_sequences) mini_batch = std::max<int64_t>(1, *job.mini_batch_sequences / n);
  if (mini_batch) {
    mini_batch = std::min(*mini_batch, job.prompts.value_or(config.data.train_batch_size));
  }
  // Prompt and response fit into the total; a limit as large as that says nothing.
  const int64_t prompt = job.prompt_length.value_or(config.data.max_prompt_length);
  std::optional<int64_t> response = job.response_length;
  if (job.total_length && *job.total_length > prompt) {
    response = std::min(response.value_or(*job.total_length), *job.total_length - prompt);
  }
  const std::string& algorithm = config.algorithm.adv_estimator;
  if (job.critic && *job.critic != (algorithm == "gae")) {
    overrides.emplace_back(*job.critic ? "algorithm.adv_estimator=gae"
                                       : "algorithm.adv_estimator=grpo");
  }
  set("data.train_batch_size", job.prompts);
  set("actor_rollout_ref.rollout.n", job.samples_per_prompt);
  set("actor_rollout_ref.actor.ppo_mini_batch_size", mini_batch);
  set("actor_rollout_ref.actor.ppo_epochs", job.epochs);
  set("data.max_prompt_length", job.prompt_length);
  set("data.max_response_length", response);
  return overrides;
}

JobSpec as_run_by(const ForeignSetting& setting, JobSpec job) {
  job.execution = setting.execution;
  if (setting.asynchronous) job.workflow = one_step_off_policy(std::move(job.workflow));
  return job;
}

Plan to_plan(const ForeignSetting& setting, const JobSpec& job, const DevicePool& pool) {
  if (setting.devices() > pool.size()) {
    refuse("the setting of " + to_string(setting.framework) + " takes " +
           std::to_string(setting.devices()) + " devices, there are " +
           std::to_string(pool.size()) + ": give --cluster and --gpus");
  }
  Plan plan;
  for (ModelStage model_stage : model_stages(job.workflow)) {
    plan.stages.push_back(placed(model_stage, setting, job, pool));
  }
  verify(plan, pool, job);
  return plan;
}

}  // namespace nereus
