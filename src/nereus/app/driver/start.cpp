#include "nereus/app/driver/start.h"

#include <algorithm>
#include <utility>

#include "nereus/app/assemble/job.h"
#include "nereus/app/assemble/starting_plan.h"
#include "nereus/app/config/changes.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/core/workflow/capabilities.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

std::string names_of(const std::vector<ModelStage>& stages) {
  std::vector<std::string> names;
  for (const ModelStage stage : stages) names.push_back(to_string(stage));
  return join(names, ", ");
}

std::vector<ModelStage> stages_of(const Plan& plan) {
  std::vector<ModelStage> stages;
  for (const StagePlan& stage : plan.stages) stages.push_back(stage.model_stage);
  std::ranges::sort(stages);
  return stages;
}

void find_checkpoint(Start& start, const std::filesystem::path& root) {
  CheckpointSearch search = search_checkpoints(root);
  start.checkpoint = std::move(search.newest);
  if (start.checkpoint) {
    for (const std::string& reason : search.damaged) {
      start.notes.push_back("Skipped a newer checkpoint, which is damaged: " + reason);
    }
    start.notes.push_back("Going on from " + start.checkpoint->directory.string());
  } else if (!search.damaged.empty()) {
    throw Error(ErrorCode::kInvalidInput,
                "no checkpoint in " + root.string() + " is complete and intact: " +
                    join(search.damaged, "; ") + "; run without --resume to begin anew");
  } else {
    start.notes.push_back("There is no checkpoint in " + root.string() + ": a new run");
  }
}

// The plan at the time of the checkpoint. Throws Error(kInvalidInput) if it is another job's.
Plan saved_plan(const Checkpoint& checkpoint, const JobSpec& job) {
  const std::string where = (checkpoint.directory / "manifest.json").string();
  const Json extra = require<Json>(checkpoint.state, "extra", where);
  Plan plan = require<Plan>(extra, "plan", where);
  std::vector<ModelStage> wanted = model_stages(job.workflow);
  std::ranges::sort(wanted);
  if (stages_of(plan) == wanted) {
    verify(plan, devices_of(plan), job);  // whichever devices are there now
    verify_runnable(plan, job);
    return plan;
  }
  throw Error(ErrorCode::kInvalidInput,
              checkpoint.directory.string() + " is of a job of " + names_of(stages_of(plan)) +
                  ", this one has " + names_of(wanted) +
                  "; resume with the algorithm.adv_estimator and models of then, or run without "
                  "--resume");
}

}  // namespace

Start find_start(const Config& config, const LiveOptions& options) {
  Start start;
  const std::filesystem::path root = run_directory(config);
  if (config.trainer.resume_mode == "auto") find_checkpoint(start, root / "checkpoints");
  if (start.checkpoint) start.step = start.checkpoint->step;
  start.pool = options.supply.at(start.step);
  const JobSpec job = job_spec(options, start.step);
  if (start.checkpoint) {
    if (std::filesystem::exists(root / "config.yaml")) {
      for (const std::string& change : changed_settings(read_text(root / "config.yaml"), config)) {
        start.notes.push_back("Changed since the last start: " + change);
      }
    }
    const Plan saved = saved_plan(*start.checkpoint, job);
    const DevicePool used = devices_of(saved);
    if (std::ranges::all_of(used.devices(), [&](DeviceId d) { return start.pool.contains(d); })) {
      start.plan = saved;
      return start;
    }
  }
  start.plan = starting_plan(config.plan, job, options.cluster, start.pool,
                             to_controller_options(config).planner);
  return start;
}

Controller make_controller(const Config& config, const LiveOptions& options, const Start& start) {
  Controller controller(job_spec(options, start.step), options.cluster, start.plan, start.pool,
                        Calibration(), to_controller_options(config));
  if (start.checkpoint) {
    Json saved = start.checkpoint->state.at("extra");
    saved["plan"] = start.plan;
    saved["pool"] = start.pool;
    controller.restore(saved);
  }
  return controller;
}

}  // namespace nereus
