#include "nereus/app/assemble/starting_plan.h"

#include <algorithm>
#include <string>

#include "nereus/app/observe/tables.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/core/planner/placement.h"
#include "nereus/core/workflow/capabilities.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidInput, message);
}

// The largest micro-batch that is allowed and that a replica's share of the mini-batch fills.
int default_micro_batch(const Workload& workload, int dp, const std::vector<int>& allowed) {
  const int64_t share = std::max<int64_t>(1, workload.mini_batch / dp);
  int best = 1;
  if (allowed.empty()) {
    while (int64_t{best} * 2 <= share) best *= 2;
  } else {
    best = *std::ranges::min_element(allowed);
    for (int size : allowed) {
      if (size <= share) best = std::max(best, size);
    }
  }
  return best;
}

StagePlan placed(ModelStage model_stage, const PlanSetting& setting, const JobSpec& job,
                 const DevicePool& pool, const PlannerOptions& options) {
  const std::string name = to_string(model_stage);
  auto found = setting.stages.find(name);
  if (found == setting.stages.end()) found = setting.stages.find("all");
  if (found == setting.stages.end()) {
    refuse("the plan says nothing about " + name + ": add it, or all");
  }
  const StageSetting& stage = found->second;
  const Layout layout{stage.tp, stage.pp};
  if (most_units(layout, pool) < stage.dp) {
    refuse("plan." + found->first + ": " + to_string(layout) + " × dp" + std::to_string(stage.dp) +
           " needs " + std::to_string(int64_t{layout.devices()} * stage.dp) + " devices for " +
           name + ", there are " + std::to_string(pool.size()));
  }
  const int micro_batch =
      stage.micro_batch > 0 ? stage.micro_batch
                            : default_micro_batch(job.workload, stage.dp,
                                                  allowed_micro_batches(options, model_stage.role));
  StagePlan plan = place(model_stage, layout, stage.dp, micro_batch, stage.recompute, pool);
  if (model_stage.stage == Stage::kGeneration) plan.waves = stage.waves;
  return plan;
}

Plan configured_plan(const PlanSetting& setting, const JobSpec& job, const DevicePool& pool,
                     const PlannerOptions& options) {
  if (!setting.file.empty()) return read_plan(setting.file);
  Plan plan;
  for (ModelStage model_stage : model_stages(job.workflow)) {
    plan.stages.push_back(placed(model_stage, setting, job, pool, options));
  }
  return plan;
}

void require_fit(const Plan& plan, const JobSpec& job, const Cluster& cluster, double headroom) {
  const MemoryPrediction memory = predict_memory(plan, job, Calibration());
  const std::vector<std::string> violations = memory_violations(memory, cluster, headroom);
  if (violations.empty()) return;
  refuse("the configured plan does not fit (adaptation.headroom keeps " +
         format_number(100 * headroom) + " % free):\n  " + join(violations, "\n  ") + "\n" +
         render_memory(memory, cluster) + "Without `plan`, the planner looks for one that fits.");
}

}  // namespace

Plan read_plan(const std::filesystem::path& file) {
  const Json json = parse_json(read_text(file), file.string());
  try {
    return as<Plan>(json.contains("plan") ? json.at("plan") : json);
  } catch (const Error& error) {
    refuse(file.string() + ": " + error.what());
  }
}

Plan starting_plan(const PlanSetting& setting, const JobSpec& job, const Cluster& cluster,
                   const DevicePool& pool, const PlannerOptions& options) {
  if (setting.empty()) {
    Expected<PlanChoice> choice = choose_plan(job, cluster, pool, Calibration(), options);
    if (!choice) throw Error(ErrorCode::kInfeasible, choice.error());
    return choice->best.plan;
  }
  Plan plan = configured_plan(setting, job, pool, options);
  verify(plan, pool, job);
  verify_runnable(plan, job);
  require_fit(plan, job, cluster, options.headroom);
  return plan;
}

}  // namespace nereus
