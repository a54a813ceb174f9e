#include "nereus/app/driver/train_recorder.h"

#include <algorithm>

#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"

namespace nereus {

bool logs_to(const Config& config, const char* logger) {
  return std::ranges::count(config.trainer.logger, logger) > 0;
}

TrainRecorder::TrainRecorder(const Config& config, Job& job, Controller& controller,
                             RunDirectory& record, ProgressLine& progress, StopSignal& stop,
                             std::optional<int> saved)
    : config_(config),
      job_(job),
      controller_(controller),
      record_(record),
      progress_(progress),
      stop_(stop),
      saved_(saved),
      saved_at_(std::chrono::steady_clock::now()) {
  stop_.at_step(job_.step());
}

void TrainRecorder::write(const StepReport& report, const Decision& decision) {
  stop_.at_step(job_.step());
  record_.write_step(report);
  record_.write_decision(decision);
  if (logs_to(config_, "console")) {
    progress_.step(report, job_.plan());
    const std::string validation = validation_text(report.metrics);
    if (!validation.empty()) progress_.message("  " + validation);
  }
  if (decision.verdict != Verdict::kNone) {
    progress_.message("  " + to_string(decision.trigger) + ": " + decision.trigger_detail + "\n  " +
                      to_string(decision.verdict) + ": " + decision.reason);
  }
}

void TrainRecorder::write(int step, const Decision& decision, const TransitionReport& report) {
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

void TrainRecorder::write(int step, const Decision& recovery) {
  record_.write_decision(recovery);
  progress_.message("  recovery: " + recovery.reason);
  if (recovery.best) record_.write_plan(step + 1, *recovery.best);
}

void TrainRecorder::write_validation(const std::map<std::string, double>& metrics) {
  if (metrics.empty()) return;
  record_.write_validation(job_.step(), metrics);
  if (logs_to(config_, "console")) progress_.message(validation_text(metrics));
}

bool TrainRecorder::is_due() const {
  const TrainerConfig& trainer = config_.trainer;
  if (trainer.save_freq == 0) return false;
  if (failed_) return true;
  if (trainer.save_freq > 0 && job_.step() % trainer.save_freq == 0) return true;
  const std::chrono::duration<double, std::ratio<60>> passed =
      std::chrono::steady_clock::now() - saved_at_;
  return trainer.save_minutes > 0 && passed.count() >= trainer.save_minutes;
}

void TrainRecorder::at_boundary() {
  if (!is_due()) return;
  try {
    save();
    if (failed_)
      log::warn("the checkpoint after step " + std::to_string(job_.step()) + " is saved");
    failed_ = false;
  } catch (const Error& error) {
    failed_ = true;
    log::warn("no checkpoint could be saved after step " + std::to_string(job_.step()) + ": " +
              error.what() + "; " +
              (saved_ ? "that after step " + std::to_string(*saved_) + " is kept, and " : "") +
              "it is tried again after the next step");
  }
}

void TrainRecorder::save() {
  if (saved_ == job_.step()) return;
  job_.save(record_.checkpoints(), controller_.save(), config_.trainer.max_actor_ckpt_to_keep);
  record_.write_event("checkpoint", job_.step() - 1, Json::object());
  saved_ = job_.step();
  saved_at_ = std::chrono::steady_clock::now();
}

}  // namespace nereus
