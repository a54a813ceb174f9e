// A job on real devices: worker threads, the step loop, transitions on live state, checkpoints.
#pragma once

#include <filesystem>
#include <memory>

#include "nereus/core/job/job.h"
#include "nereus/runtime/data/checkpoint.h"
#include "nereus/runtime/live/options.h"

namespace nereus {

// Owned and called by one thread (the driver's). Owns one worker thread per device. Nothing but
// save(), intact() and what reads may be called after something threw.
//
// LiveOptions::stop ends what goes on within the time of a decode step or micro-batch, and changes
// no result: a step that has changed no weight yet is abandoned, one that has is finished, and a
// validation that is cut off is made up for after a resume.
class LiveJob final : public Job {
 public:
  // Reads prompts and models, builds the units of `plan` on the devices. Throws Error:
  // kInvalidInput for bad files and options, kOutOfMemory if a device's budget is too small for the
  // state.
  LiveJob(LiveOptions options, Plan plan);
  ~LiveJob() override;

  Inventory inventory() const override;
  const Plan& plan() const override;
  bool done() const override;
  StepReport run_step() override;
  TransitionReport apply(const TransitionDag& dag) override;
  void overlap(TransitionDag dag, Plan to) override;
  TransitionReport recover(const Plan& to) override;

  // Number of the next step.
  int step() const;
  // True if the training state is that of the boundary before step(): after every call that
  // returned, unless it reported a transition that failed, and after every one that threw before it
  // had changed a weight.
  bool intact() const;
  // Prompts, those of the validation included, left out because they were longer than
  // max_prompt_length.
  int64_t dropped_prompts() const;
  // The metrics of the validation before the first step, or of that after the last one if it was
  // cut off before the checkpoint was made; none if neither is due, or if the job is told to stop.
  // Those of others are among the metrics of the step that they follow.
  std::map<std::string, double> validate_at_start();

  // Writes root/step_N (N = steps done) with all logical state; `extra` is kept with it (the
  // controller's). Throws Error: kAborted if the job is not intact(), kIo.
  void save(const std::filesystem::path& root, const Json& extra, int keep) const;
  // Continues from a checkpoint, whatever layout wrote it. Returns `extra`. Prompts go on where
  // they were; another data set (other rows, filter or shuffling, not another place of the file)
  // begins at its beginning, with a warning. The KL coefficient is the checkpoint's if it is
  // adaptive there and here, else that of the options.
  Json resume(const Checkpoint& checkpoint);
  // The actor as a Hugging Face model directory.
  void export_actor(const std::filesystem::path& directory) const;
  // Layout-independent hashes of the whole logical training state: equal iff bit-equal.
  std::map<std::string, uint64_t> state_hashes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereus
