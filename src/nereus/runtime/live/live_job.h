// A job on real devices: worker threads, the step loop, transitions on live state, checkpoints.
#pragma once

#include <filesystem>
#include <memory>

#include "nereus/core/job/job.h"
#include "nereus/runtime/data/checkpoint.h"
#include "nereus/runtime/live/options.h"

namespace nereus {

// Owns one worker thread per device.
//
// LiveOptions::stop ends what goes on within the time of a decode step or micro-batch, and changes
// no result: a step that has changed no weight yet is abandoned, one that has is finished, and a
// validation that is cut off is made up for after a resume.
class LiveJob final : public Job {
 public:
  // Reads prompts and models, builds the units of `plan` on the devices. Throws Error:
  // kInvalidInput for bad files and options and for a plan that the runtime cannot carry out,
  // kOutOfMemory if a device's budget is too small for the state.
  LiveJob(LiveOptions options, Plan plan);
  ~LiveJob() override;

  const Plan& plan() const override;
  bool done() const override;
  StepReport run_step() override;
  TransitionReport apply(const TransitionDag& dag) override;
  void overlap(TransitionDag dag, Plan to) override;
  TransitionReport recover(const Plan& to) override;

  int step() const override;
  bool intact() const override;
  int64_t dropped_prompts() const override;
  std::map<std::string, double> validate_at_start() override;
  void save(const std::filesystem::path& root, const Json& extra, int keep) const override;
  // Continues from a checkpoint, whatever layout wrote it. Returns what save() was given as
  // `extra`. Prompts go on where they were; another data set (other rows, filter or shuffling, not
  // another place of the file) begins at its beginning, with a warning. The KL coefficient is the
  // checkpoint's if it is adaptive there and here, else that of the options.
  Json resume(const Checkpoint& checkpoint);
  void export_model(const std::filesystem::path& directory) const override;

  // Layout-independent hashes of the whole logical training state: equal iff bit-equal.
  std::map<std::string, uint64_t> state_hashes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereus
