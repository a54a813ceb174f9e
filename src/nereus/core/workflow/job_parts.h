// The JobSpec of a job whose parts are known, however it was configured: from a config file for a
// plan, from a live job's options for its execution.
#pragma once

#include <map>

#include "nereus/core/workflow/job_spec.h"
#include "nereus/core/workflow/objective.h"

namespace nereus {

struct JobParts {
  // The actor, and of critic, reference and reward model those that the job has.
  std::map<Role, ModelSpec> models;
  DType dtype = DType::kFloat32;  // of all weights
  PpoOptions ppo;
  OptimizerOptions actor_optimizer;
  OptimizerOptions critic_optimizer;
  int64_t prompts = 0;             // per step (train_batch_size)
  int64_t samples_per_prompt = 1;  // rollout.n
  int64_t prompt_limit = 0;        // tokens
  int64_t response_limit = 0;      // tokens, of the step that is asked about
  int64_t longest_response = 0;    // tokens, the largest limit of the run
  int total_steps = 0;
  bool on_gpus = false;  // else on virtual devices of the CPU
};

// Throws Error(kInvalidInput) naming the option (verl's name) for contradictions: a mini-batch
// larger than the batch, a critic of another vocabulary, GAE without a critic, KL without a
// reference, a reward model that gives no score, sequences longer than a model's positions, …
JobSpec make_job_spec(const JobParts& parts);

}  // namespace nereus
