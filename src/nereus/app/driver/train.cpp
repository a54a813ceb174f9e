#include "nereus/app/driver/train.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nereus/app/assemble/devices.h"
#include "nereus/app/driver/live_options.h"
#include "nereus/app/driver/loop.h"
#include "nereus/app/driver/start.h"
#include "nereus/app/driver/stop_signal.h"
#include "nereus/app/driver/train_recorder.h"
#include "nereus/app/observe/limits.h"
#include "nereus/app/observe/progress.h"
#include "nereus/app/observe/run_directory.h"
#include "nereus/app/observe/run_lock.h"
#include "nereus/app/observe/tables.h"
#include "nereus/core/base/log.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/live/live_job.h"

namespace nereus {

namespace {

// Files that are read are where they are already: whoever changes the working directory later
// changes nothing of those that are written either.
Config with_fixed_places(Config config) {
  TrainerConfig& trainer = config.trainer;
  trainer.default_local_dir = std::filesystem::absolute(run_directory(config)).string();
  if (!trainer.rollout_data_dir.empty()) {
    trainer.rollout_data_dir = std::filesystem::absolute(trainer.rollout_data_dir).string();
  }
  return config;
}

RunDirectory open_record(const Config& config, const Start& start, RunLock& lock,
                         ProgressLine& progress) {
  const std::filesystem::path root = run_directory(config);
  if (!start.checkpoint && holds_run(root)) {
    progress.message("The earlier run is kept as " + move_contents_aside(root).string());
  }
  for (const std::string& note : start.notes) progress.message(note);
  lock.keep();
  RunDirectory record(root, start.step, logs_to(config, "tensorboard"));
  record.write_config(to_yaml(config));
  record.write_plan(start.step, start.plan);
  return record;
}

std::string number(const Json& summary, const char* key, const char* format) {
  return summary.at(key).is_null() ? "-" : format_number(summary.at(key).get<double>(), format);
}

// What a run came to that has done all its steps.
std::string done_words(const RunDirectory& record, int steps, const Json& summary) {
  return "Done: " + std::to_string(steps) + " steps in " + number(summary, "wall_s", "%.1f") +
         " s, reward " + number(summary, "reward_first", "%.3f") + " → " +
         number(summary, "reward_last", "%.3f") + ", " +
         std::to_string(summary.at("transitions").size()) +
         " transitions.\nModel: " + record.exported().string() +
         "\nWhy it changed its plan: ./nereus explain " + record.root().string();
}

std::string stopped_words(LoopEnd end, const RunDirectory& record, int steps) {
  return (end == LoopEnd::kStopped ? "Stopped"
                                   : "No plan fits the devices that are left: stopped") +
         std::string(" after step ") + std::to_string(steps) + ", checkpoint saved in " +
         record.checkpoints().string() + "\nGo on" +
         (end == LoopEnd::kStopped ? "" : " when there are devices") +
         " with the same command and --resume.";
}

// From where a run may go on that has come to an end it was not to have.
std::string way_on(const TrainRecorder& recorder, const RunDirectory& record) {
  if (!recorder.saved()) {
    return "There is no checkpoint to go on from: what is in memory could not be saved.";
  }
  return "The state after step " + std::to_string(*recorder.saved()) + " is saved in " +
         record.checkpoints().string() + "; go on from there with the same command and --resume.";
}

// As a shell says it of a program that a signal ended: to a job script, less than all steps is no
// success.
int exit_code_of(LoopEnd end, const StopSignal& stop) {
  constexpr int kSignalled = 128;
  if (end == LoopEnd::kStopped) return kSignalled + stop.number();
  return end == LoopEnd::kStranded ? exit_code(ErrorCode::kInfeasible) : 0;
}

// Lack of device memory, with what devices were to hold under the plan, and what would help; any
// other error in words that name a limit of the machine, if one is behind it.
Error explained(const std::exception& error, const Plan& plan, const JobSpec& job,
                const Cluster& cluster, const Calibration& calibration) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours == nullptr || ours->code() != ErrorCode::kOutOfMemory) {
    return Error(ours == nullptr ? ErrorCode::kInternal : ours->code(), with_limits(error));
  }
  return Error(ours->code(),
               std::string(error.what()) + "\nPredicted memory of the plan, " + short_plan(plan) +
                   ":\n" + render_memory(predict_memory(plan, job, calibration), cluster) +
                   "Less is needed with a smaller ppo_micro_batch_size_per_gpu or "
                   "max_response_length, with more devices, or with recomputation "
                   "(adaptation.allow_recompute=true). If another program uses the device, lower "
                   "cluster.memory_per_device.");
}

// The one place that knows what kind of job it is.
std::unique_ptr<Job> start_job(const LiveOptions& options, const Start& start) {
  try {
    auto job = std::make_unique<LiveJob>(options, start.plan);
    if (start.checkpoint) job->resume(*start.checkpoint);
    return job;
  } catch (const Error& error) {
    throw explained(error, start.plan, job_spec(options, start.step), options.cluster, {});
  }
}

// Does what has to do with a disk that may be full. Why it could not be done; empty if it was.
template <class Work>
std::string tried(const Work& work) {
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    try {
      work();
      return "";
    } catch (const Error& error) {
      // A disk is often full for a moment only.
      if (error.code() != ErrorCode::kIo || attempt == kAttempts) return error.what();
    } catch (const std::exception& error) {
      return with_limits(error);
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

// The end of a run whose steps ended as they should: saves, exports and sums up what it can,
// whatever fails of it, and says so. Returns the exit code.
int finish(LoopEnd end, const Config& config, const Job& job, TrainRecorder& recorder,
           RunDirectory& record, ProgressLine& progress, const StopSignal& stop) {
  // Then the model is left to the next session, or to `nereus export`.
  if (end == LoopEnd::kFinished && stop.requested()) end = LoopEnd::kStopped;
  std::vector<std::string> failures;
  const auto attempt = [&](const std::string& what, const auto& work) {
    const std::string why = tried(work);
    if (!why.empty()) failures.push_back(what + ": " + why);
    return why.empty();
  };
  // A run that was stopped goes on from where it is.
  const bool to_save = end != LoopEnd::kFinished || config.trainer.save_freq != 0;
  const bool saved =
      !to_save || attempt("the last state could not be saved", [&] { recorder.save(); });
  const bool exported = end != LoopEnd::kFinished || attempt("the model could not be written", [&] {
                          job.export_model(record.exported());
                        });
  Json summary;
  attempt("the record is not complete", [&] { summary = record.write_summary(); });
  progress.finish();
  if (end == LoopEnd::kFinished && exported && !summary.is_null()) {
    progress.message(done_words(record, job.step(), summary));
  }
  if (end != LoopEnd::kFinished && saved) progress.message(stopped_words(end, record, job.step()));
  if (failures.empty()) return exit_code_of(end, stop);
  std::string text = join(failures, "\n");
  if (!saved) text += "\n" + way_on(recorder, record);
  if (!exported && recorder.saved() == job.step()) {
    text += "\nWrite the model later with: ./nereus export " + record.root().string();
  }
  throw Error(ErrorCode::kIo, text);
}

// The end of a run that an error has ended: what memory still holds is saved, and the error comes
// back with the way on.
Error failed(const Error& error, const Job& job, TrainRecorder& recorder, RunDirectory& record,
             ProgressLine& progress) {
  progress.finish();
  std::string text = error.what();
  if (job.intact()) {
    const std::string why = tried([&] { recorder.save(); });
    if (!why.empty()) text += "\nThe state after the last step could not be saved: " + why;
  }
  text += "\n" + way_on(recorder, record);
  const std::string why = tried([&] {
    record.write_event("fault", job.step(), {{"message", text}});
    record.write_summary();
  });
  if (!why.empty()) log::warn(why);
  return Error(error.code(), text);
}

void greet(const Job& job, const LiveOptions& options, const Start& start, ProgressLine& progress) {
  if (job.dropped_prompts() > 0) {
    progress.message("Dropped " + std::to_string(job.dropped_prompts()) +
                     " prompts longer than data.max_prompt_length = " +
                     std::to_string(options.data.max_prompt_length));
  }
  progress.message("Starting at step " + std::to_string(start.step + 1) + " with");
  for (const StagePlan& stage : start.plan.stages) progress.message("  " + to_string(stage));
}

}  // namespace

int train(const Config& given) {
  const Config config = with_fixed_places(given);
  StopSignal stop;
  const std::filesystem::path root = run_directory(config);
  verify_run_root(root);
  RunLock lock(root);
  stop.leave_nothing_of(lock.made());
  verify_run_root(root);  // now that nobody else writes there
  LiveOptions options = to_live_options(config);
  options.stop = stop.token();
  require_gpus(options.backend, cuda::device_count());
  const Start start = find_start(config, options);
  const std::unique_ptr<Job> job = start_job(options, start);
  Controller controller = make_controller(config, options, start);

  ProgressLine progress = ProgressLine::to_terminal(options.total_steps);
  stop.protect();
  RunDirectory record = open_record(config, start, lock, progress);
  greet(*job, options, start, progress);
  TrainRecorder recorder(config, *job, controller, record, progress, stop,
                         start.checkpoint ? std::optional(start.step) : std::nullopt);
  LoopEnd end = LoopEnd::kFinished;
  try {
    recorder.write_validation(job->validate_at_start());
    end = run_loop(*job, controller, recorder, stop.requested());
  } catch (const std::exception& error) {
    throw failed(
        explained(error, job->plan(), controller.job(), options.cluster, controller.calibration()),
        *job, recorder, record, progress);
  }
  return finish(end, config, *job, recorder, record, progress, stop);
}

}  // namespace nereus
