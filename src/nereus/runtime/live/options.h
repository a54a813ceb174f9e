// Everything a live job needs to know, in the types of the rooms that use it. What users need not
// give has its default in app/config, and none here.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"
#include "nereus/core/base/stop_token.h"
#include "nereus/core/base/units.h"
#include "nereus/core/cluster/backend.h"
#include "nereus/core/cluster/cluster.h"
#include "nereus/core/workflow/job_spec.h"
#include "nereus/core/workflow/objective.h"
#include "nereus/core/workflow/sampling_params.h"
#include "nereus/runtime/engine/transition_executor.h"
#include "nereus/runtime/files/model_config.h"
#include "nereus/runtime/rl/rewards/reward_limits.h"
#include "nereus/runtime/rl/sample.h"
#include "nereus/runtime/supply/schedule.h"

namespace nereus {

struct DataOptions {
  std::filesystem::path train_file;  // JSON lines
  std::string prompt_key;
  std::filesystem::path tokenizer;       // directory; usually the actor's
  int64_t train_batch_size = 0;          // prompts per step
  int64_t samples_per_prompt = 1;        // rollout.n
  int64_t max_prompt_length = 0;         // tokens
  bool filter_overlong_prompts = false;  // drop (and count) longer prompts instead of refusing them
  bool shuffle = false;
};

struct ValidationOptions {
  std::filesystem::path file;               // as DataOptions::train_file; empty: no validation
  int every = -1;                           // steps, and after the last one; -1: never
  bool before_training = false;             // of a new job
  int64_t samples_per_prompt = 1;           // val_kwargs.n
  SamplingParams sampling{.greedy = true};  // but for the seed, which is the job's
};

struct LiveOptions {
  Cluster cluster;
  Backend backend;
  // The actor; a critic exactly if the advantage estimator needs one; a reference for KL in reward
  // or in loss; a reward model if one scores responses in place of `reward`.
  std::map<Role, ModelSource> models;
  DType dtype = DType::kFloat32;  // weights; half precision keeps an fp32 master copy
  DataOptions data;
  ValidationOptions validation;
  PpoOptions ppo;
  OptimizerOptions actor_optimizer;
  OptimizerOptions critic_optimizer;
  SamplingParams sampling;
  bool ignore_eos = false;
  LengthSchedule response_length;  // max_response_length per step
  SupplySchedule supply;           // devices per step
  std::string reward;              // for open_reward(), without a reward model
  Json reward_options;
  double max_reward_failures = 0;  // share of samples that may not be scored
  bool exclude_unscored = false;   // else they count as scored with 0
  RewardLimits reward_limits;      // of a reward in Python
  int total_steps = 0;
  uint64_t seed = 0;
  // Where the batch of a step that met NaN or Inf is kept (failed_step_N.json); empty: nowhere.
  std::filesystem::path failure_directory;
  std::filesystem::path rollout_directory;  // for the responses of every step; empty: nowhere
  bool verify_transitions = false;          // hash the logical state before and after
  // bytes/s; > 0: what a transition moves between devices takes at least its time, as over a slow
  // network.
  double link_bandwidth = 0;
  // Looked at between decode steps, micro-batches and scored samples, as long as a step has changed
  // no weight yet: see Job::run_step().
  StopToken stop;
  // Called at each event of a transition, on the device's thread; throwing DeviceLost kills it.
  std::function<void(const TransitionEvent&)> on_transition_event;
  // Called by run_step() with all that is known of a step's samples, before anything is learnt.
  std::function<void(const Experience&)> on_experience;
};

// What planner and controller know of this job. Reads the config.json files. `step`: which step's
// lengths. Throws Error(kInvalidInput) naming the option for contradictions (mini-batch larger than
// the batch, a critic of another vocabulary, GAE without a critic, KL without a reference, a reward
// model that gives no score, …).
JobSpec job_spec(const LiveOptions& options, int step);

}  // namespace nereus
