// Real state of the model-stages of a trial, and the proof that it survived.
#pragma once

#include "nereus/core/workflow/job_spec.h"
#include "nereus/runtime/engine/state_store.h"

namespace nereus::bench {

// Random state under a plan, equal in all replicas and different in every model-stage. `job` and
// `workers` must outlive it.
class TrialState final {
 public:
  TrialState(const Plan& plan, const JobSpec& job, const WorkerPool& workers);

  StateStore& store() { return store_; }
  StateSchema schema(ModelStage model_stage) const;
  // True if all units of `plan` are there and hold the bytes that the model-stage began with.
  bool is_intact(const Plan& plan) const;

 private:
  const JobSpec& job_;
  StateStore store_;
  std::map<ModelStage, std::map<std::string, uint64_t>> hashes_;
};

}  // namespace nereus::bench
