// The files of one run: config.yaml, plans/, metrics.jsonl, events.jsonl, summary.json, trace.json,
// tb/.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nereus/app/observe/append_log.h"
#include "nereus/app/observe/tensorboard.h"
#include "nereus/app/observe/trace.h"
#include "nereus/core/controller/decision.h"
#include "nereus/core/job/job.h"

namespace nereus {

// Writes the record of a run. Lines reach the file as they are written, or, if the disk is full, as
// soon as it no longer is. Not thread-safe; throws Error(kIo).
class RunDirectory {
 public:
  // Opens `root`, creating it. Lines about steps from `first_step` on (0: all) are forgotten: a
  // resumed run does those steps again. So are lines that no run writes, with a warning that names
  // file, line and key. With tensorboard false, no tb/ is written.
  RunDirectory(std::filesystem::path root, int first_step, bool tensorboard);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }
  std::filesystem::path exported() const { return root_ / "hf"; }

  void write_config(const std::string& yaml);
  // The plan in force from `step` on: plans/NNN.json and a "plan" event. A plan that cannot be
  // written down is warned of.
  void write_plan(int step, const Plan& plan);
  void write_step(const StepReport& report);
  // What a validation at the start of a session said of the weights after `steps` steps. Of others,
  // the step's metrics tell.
  void write_validation(int steps, const std::map<std::string, double>& metrics);
  void write_decision(const Decision& decision);
  // `to`: the plan in force afterwards, which an overlapped transition reaches with the next weight
  // synchronisation.
  void write_transition(int step, const TransitionDag& dag, const Plan& to,
                        const TransitionReport& report);
  // {"type": type, "step": step} and the details.
  void write_event(const std::string& type, int step, Json details);
  // Writes summary.json and returns it. Throws Error(kIo) also if there are lines left that could
  // not be written.
  Json write_summary();

  // Seconds of work on this run so far, earlier sessions included.
  double wall_s() const;

 private:
  std::filesystem::path root_;
  double earlier_s_ = 0;
  std::chrono::steady_clock::time_point opened_;
  int plans_ = 0;
  std::optional<AppendLog> metrics_;
  std::optional<AppendLog> events_;
  std::optional<TraceWriter> trace_;
  std::optional<TensorBoardWriter> tensorboard_;
};

// True if a run was recorded here: it has the files that every run has, or one of its checkpoints.
// A config.yaml alone may be anybody's.
bool holds_run(const std::filesystem::path& root);
// Throws Error(kInvalidInput) if there is something at the path that is neither a run, nor an empty
// directory, nor what a run leaves that did not begin: nobody's files are moved out of the way.
void verify_run_root(const std::filesystem::path& root);
// Moves what is in the directory, but for its lock, to root.1 (or .2, …, the first that is free)
// and returns that name. Its lock must be held. Throws Error(kIo).
std::filesystem::path move_contents_aside(const std::filesystem::path& root);

}  // namespace nereus
