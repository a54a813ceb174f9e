#include "nereus/driver/train.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "nereus/base/log.h"
#include "nereus/base/text.h"
#include "nereus/config/devices.h"
#include "nereus/config/options.h"
#include "nereus/driver/loop.h"
#include "nereus/driver/start.h"
#include "nereus/driver/stop_signal.h"
#include "nereus/live/live_job.h"
#include "nereus/observe/progress.h"
#include "nereus/observe/run_directory.h"
#include "nereus/observe/run_lock.h"
#include "nereus/observe/tables.h"

namespace nereus {

namespace {

bool logs_to(const Config& config, const char* logger) {
  return std::ranges::count(config.trainer.logger, logger) > 0;
}

RunDirectory open_record(const Config& config, const Start& start, std::optional<RunLock>& lock,
                         ProgressLine& progress) {
  const std::filesystem::path root = run_directory(config);
  if (!start.checkpoint && holds_run(root)) {
    progress.message("The earlier run is kept as " + move_aside(root).string());
    lock.reset();
  }
  if (!lock) lock.emplace(root);
  for (const std::string& note : start.notes) progress.message(note);
  RunDirectory record(root, start.step, logs_to(config, "tensorboard"));
  record.write_config(to_yaml(config));
  record.write_plan(start.step, start.plan);
  return record;
}

// Writes everything down, shows it, and saves checkpoints when they are due.
class TrainRecorder final : public Recorder {
 public:
  TrainRecorder(const Config& config, LiveJob& job, Controller& controller, RunDirectory& record,
                ProgressLine& progress, int saved)
      : config_(config),
        job_(job),
        controller_(controller),
        record_(record),
        progress_(progress),
        saved_(saved) {}

  void write(const StepReport& report, const Decision& decision) override {
    record_.write_step(report);
    record_.write_decision(decision);
    if (logs_to(config_, "console")) {
      progress_.step(report, job_.plan());
      const std::string validation = validation_text(report.metrics);
      if (!validation.empty()) progress_.message("  " + validation);
    }
    if (decision.verdict != Verdict::kNone) {
      progress_.message("  " + to_string(decision.trigger) + ": " + decision.trigger_detail +
                        "\n  " + to_string(decision.verdict) + ": " + decision.reason);
    }
  }

  void write(int step, const Decision& decision, const TransitionReport& report) override {
    const TransitionDag& dag = *decision.transition;
    record_.write_transition(step, dag, *decision.best, report);
    if (report.failure) {
      record_.write_event("fault", step, {{"message", report.failure->reason}});
      progress_.message("  transition failed: " + report.failure->reason);
      return;
    }
    record_.write_plan(step + 1, *decision.best);
    progress_.message(
        "  transition of " + std::to_string(dag.primitives.size()) + " primitives: predicted " +
        to_string(dag.makespan) + ", measured " + to_string(report.measured) +
        (decision.overlapped ? ", waited for " + to_string(report.exposed) : "") + ", moved " +
        to_string(report.moved) + (report.verified ? ", verified bit-equal" : "") + "\n  now " +
        short_plan(*decision.best));
  }

  void write(int step, const Decision& recovery) override {
    record_.write_decision(recovery);
    progress_.message("  recovery: " + recovery.reason);
    if (recovery.best) record_.write_plan(step + 1, *recovery.best);
  }

  // That before the first step.
  void write_validation(const std::map<std::string, double>& metrics) {
    if (metrics.empty()) return;
    record_.write_validation(metrics);
    if (logs_to(config_, "console")) progress_.message(validation_text(metrics));
  }

  void at_boundary() override {
    const int every = config_.trainer.save_freq;
    if (every > 0 && job_.step() % every == 0) save();
  }

  void save() {
    if (saved_ == job_.step()) return;
    job_.save(record_.checkpoints(), controller_.save(), config_.trainer.max_actor_ckpt_to_keep);
    record_.write_event("checkpoint", job_.step() - 1, Json::object());
    saved_ = job_.step();
  }

 private:
  const Config& config_;
  LiveJob& job_;
  Controller& controller_;
  RunDirectory& record_;
  ProgressLine& progress_;
  int saved_;  // the step of the newest checkpoint; -1: there is none
};

std::string number(const Json& summary, const char* key, const char* format) {
  return summary.at(key).is_null() ? "-" : format_number(summary.at(key).get<double>(), format);
}

// The last words of a run: what it came to and how to go on.
std::string closing_words(LoopEnd end, const RunDirectory& record, int steps, const Json& summary) {
  const std::string root = record.root().string();
  if (end == LoopEnd::kFinished) {
    return "Done: " + std::to_string(steps) + " steps in " + number(summary, "wall_s", "%.1f") +
           " s, reward " + number(summary, "reward_first", "%.3f") + " → " +
           number(summary, "reward_last", "%.3f") + ", " +
           std::to_string(summary.at("transitions").size()) +
           " transitions.\nModel: " + record.exported().string() +
           "\nWhy it changed its plan: ./nereus explain " + root;
  }
  return (end == LoopEnd::kStopped ? "Stopped"
                                   : "No plan fits the devices that are left: stopped") +
         std::string(" after step ") + std::to_string(steps) + ", checkpoint saved in " +
         record.checkpoints().string() + "\nGo on" +
         (end == LoopEnd::kStopped ? "" : " when there are devices") +
         " with the same command and --resume.";
}

// As a shell says it of a program that a signal ended: to a job script, less than all steps is no
// success.
int exit_code_of(LoopEnd end, const StopSignal& stop) {
  constexpr int kSignalled = 128;
  if (end == LoopEnd::kStopped) return kSignalled + stop.number();
  return end == LoopEnd::kStranded ? exit_code(ErrorCode::kInfeasible) : 0;
}

// Lack of memory, with what devices were to hold under the plan, and what would help; any other
// error as it is.
Error explained(const Error& error, const Plan& plan, const JobSpec& job, const Cluster& cluster,
                const Calibration& calibration) {
  if (error.code() != ErrorCode::kOutOfMemory) return error;
  return Error(error.code(),
               std::string(error.what()) + "\nPredicted memory of the plan, " + short_plan(plan) +
                   ":\n" + render_memory(predict_memory(plan, job, calibration), cluster) +
                   "Less is needed with a smaller ppo_micro_batch_size_per_gpu or "
                   "max_response_length, with more devices, or with recomputation "
                   "(adaptation.allow_recompute=true). If another program uses the device, lower "
                   "cluster.memory_per_device. Go on from the last checkpoint with --resume.");
}

// A failed run's last words must not be lost because they cannot be written down either.
void record_fault(RunDirectory& record, int step, const Error& error) {
  try {
    record.write_event("fault", step, {{"message", error.what()}});
    record.write_summary();
  } catch (const Error& another) {
    log::warn(another.what());
  }
}

std::unique_ptr<LiveJob> start_job(const LiveOptions& options, const Start& start) {
  try {
    auto job = std::make_unique<LiveJob>(options, start.plan);
    if (start.checkpoint) job->resume(*start.checkpoint);
    return job;
  } catch (const Error& error) {
    throw explained(error, start.plan, job_spec(options, start.step), options.cluster, {});
  }
}

}  // namespace

int train(const Config& config) {
  const StopSignal stop;
  LiveOptions options = to_live_options(config);
  options.stop = StopToken(stop.requested());
  require_gpus(options.backend, cuda::device_count());
  verify_run_root(run_directory(config));
  // A job that cannot begin leaves no directory behind.
  std::optional<RunLock> lock;
  if (std::filesystem::exists(run_directory(config))) lock.emplace(run_directory(config));
  const Start start = find_start(config, options);
  const std::unique_ptr<LiveJob> owner = start_job(options, start);
  LiveJob& job = *owner;
  Controller controller = make_controller(config, options, start);

  ProgressLine progress = ProgressLine::to_terminal(options.total_steps);
  RunDirectory record = open_record(config, start, lock, progress);
  if (job.dropped_prompts() > 0) {
    progress.message("Dropped " + std::to_string(job.dropped_prompts()) +
                     " prompts longer than data.max_prompt_length = " +
                     std::to_string(options.data.max_prompt_length));
  }
  progress.message("Starting at step " + std::to_string(start.step + 1) + " with");
  for (const StagePlan& stage : start.plan.stages) progress.message("  " + to_string(stage));

  TrainRecorder recorder(config, job, controller, record, progress,
                         start.checkpoint ? start.step : -1);
  try {
    recorder.write_validation(job.validate_at_start());
    const LoopEnd end = run_loop(job, controller, recorder, stop.requested());
    // A run that was stopped goes on from where it is.
    if (end != LoopEnd::kFinished || config.trainer.save_freq != 0) recorder.save();
    if (end == LoopEnd::kFinished) job.export_actor(record.exported());
    const Json summary = record.write_summary();
    progress.finish();
    progress.message(closing_words(end, record, job.step(), summary));
    return exit_code_of(end, stop);
  } catch (const Error& error) {
    progress.finish();
    const Error full =
        explained(error, job.plan(), controller.job(), options.cluster, controller.calibration());
    record_fault(record, job.step(), full);
    throw full;
  } catch (const std::exception& error) {
    progress.finish();
    record_fault(record, job.step(), Error(ErrorCode::kInternal, error.what()));
    throw;
  }
}

}  // namespace nereus
