// One model-stage of a Llama shape on the GPUs of one host: its state, and plans of it.
#pragma once

#include "common/jobs.h"
#include "nereus/core/transition/compile.h"
#include "nereus/runtime/engine/transition_executor.h"

namespace nereus::bench {

// "1b", "3b", "8b". Throws Error(kInvalidInput) for any other name.
ModelSpec shape_named(const std::string& name);
int64_t num_parameters(const ModelSpec& spec);

// The GPUs 0 … devices-1 of this machine, with all their memory.
Cluster gpu_cluster(int devices);
Backend first_gpus(int count);

// Units of `layout` on the first `units` × layout.devices() devices, of the actor's training or,
// weights only, generation.
Plan actor_plan(ModelStage model_stage, Layout layout, int units);

class GpuState final {
 public:
  GpuState(const ModelSpec& spec, ModelStage model_stage, int devices);

  const Cluster& cluster() const { return cluster_; }
  const JobSpec& job() const { return job_; }
  const WorkerPool& workers() const { return workers_; }
  StateStore& store() { return store_; }
  StateSchema schema() const { return state_schema(job_.models.at(Role::kActor), model_stage_); }
  Bytes bytes() const;  // of one copy

  // The state of a plan's units: weights near 0, moments 0.
  void fill(const Plan& plan);
  StageHashes hashes(const Plan& plan) { return hash_stages(plan, store_, workers_); }

  Expected<TransitionDag> compile(const Plan& from, const Plan& to);
  TransitionReport run(const TransitionDag& dag, const WorkerPool* workers = nullptr);
  // What the fullest link has to carry: the most that one device gets from others.
  Bytes most_received(const Plan& from, const Plan& to) const;

 private:
  ModelStage model_stage_;
  Cluster cluster_;
  JobSpec job_;
  WorkerPool workers_;
  StateStore store_;
  TransitionCompiler compiler_;
};

}  // namespace nereus::bench
