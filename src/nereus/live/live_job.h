// A job on real devices: worker threads, the step loop, transitions on live state, checkpoints.
#pragma once

#include <filesystem>
#include <memory>

#include "nereus/data/checkpoint.h"
#include "nereus/job/job.h"
#include "nereus/live/options.h"

namespace nereus {

// Owned and called by one thread (the driver's). Owns one worker thread per device. After
// run_step() threw, the training state may contain the step's completed optimizer steps: go on from
// a checkpoint.
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
  // Prompts, those of the validation included, left out because they were longer than
  // max_prompt_length.
  int64_t dropped_prompts() const;
  // The metrics of the validation before the first step; none if it is not wanted, or if steps have
  // been done. Those of later ones are among the metrics of the step that they follow.
  std::map<std::string, double> validate_before_training();

  // Writes root/step_N (N = steps done) with all logical state; `extra` is kept with it (the
  // controller's).
  void save(const std::filesystem::path& root, const Json& extra, int keep) const;
  // Continues from a checkpoint, whatever layout wrote it. Returns `extra`.
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
