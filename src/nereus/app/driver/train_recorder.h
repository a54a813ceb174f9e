// The record of a training run while it goes on, and its checkpoints.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "nereus/app/config/config.h"
#include "nereus/app/driver/loop.h"
#include "nereus/app/driver/stop_signal.h"
#include "nereus/app/observe/progress.h"
#include "nereus/app/observe/run_directory.h"
#include "nereus/core/job/job.h"

namespace nereus {

// Writes everything down, shows it, and saves checkpoints when they are due: after every save_freq
// steps, and when save_minutes have passed since the last one. One that cannot be written is warned
// of and tried again at the next boundary. All that is given outlives it.
class TrainRecorder final : public Recorder {
 public:
  // `saved`: the step of the checkpoint that the job goes on from, if there is one.
  TrainRecorder(const Config& config, Job& job, Controller& controller, RunDirectory& record,
                ProgressLine& progress, StopSignal& stop, std::optional<int> saved);

  void write(const StepReport& report, const Decision& decision) override;
  void write(int step, const Decision& decision, const TransitionReport& report) override;
  void write(int step, const Decision& recovery) override;
  void at_boundary() override;

  // One at the start of the session.
  void write_validation(const std::map<std::string, double>& metrics);

  // Saves the state of the job, unless its newest checkpoint is of that state. Throws Error.
  void save();
  // The step of the newest checkpoint, if there is one.
  std::optional<int> saved() const { return saved_; }

 private:
  bool is_due() const;

  const Config& config_;
  Job& job_;
  Controller& controller_;
  RunDirectory& record_;
  ProgressLine& progress_;
  StopSignal& stop_;
  std::optional<int> saved_;
  bool failed_ = false;  // the last checkpoint that was due
  std::chrono::steady_clock::time_point saved_at_;
};

bool logs_to(const Config& config, const char* logger);

}  // namespace nereus
