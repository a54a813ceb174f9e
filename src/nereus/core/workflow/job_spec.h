// What is trained: the models, the workflow and the size of a step. Everything that cost, planner
// and controller need to know of a job, live or simulated.
#pragma once

#include <map>
#include <vector>

#include "nereus/core/workflow/algorithm.h"

namespace nereus {

// The work of one RL step. It changes while a job runs: lengths grow and shrink.
struct Workload {
  int64_t samples = 0;             // sequences per step (prompts × rollout.n)
  int64_t samples_per_prompt = 1;  // rollout.n
  int64_t prompt_tokens = 0;       // longest prompt, tokens
  double response_mean = 0;        // mean response length expected, tokens
  int64_t response_limit = 0;      // longest response allowed, tokens
  int64_t mini_batch = 0;          // sequences per optimizer step
  int epochs = 1;                  // passes over the batch
  // Response lengths at evenly spaced probabilities from 0 to 1, ascending, at least two; scaled to
  // response_mean. Empty: derived from mean and limit (response_lengths.h).
  std::vector<double> response_quantiles;
  bool operator==(const Workload&) const = default;
};

// What the software does that runs the job. The defaults are what ours does; the others describe
// frameworks for which a plan is made.
struct Execution {
  bool paged_cache = false;        // the KV cache grows token by token, else has room for the limit
  bool sequence_parallel = false;  // what tensor parallelism does not cut is cut along the sequence
  int pipeline_chunks = 1;  // model chunks per pipeline rank: interleaving divides the bubble by it
  double gradient_overlap = 0;  // share of the last backward pass that hides gradient all-reduce
  // Kernels as ours on GPUs: attention, log-probabilities and sampling without copies in between.
  bool fused_kernels = false;
  // Recomputation leaves out what backward does not read: each block's last product, the head.
  bool recomputes_only_what_is_read = false;
  bool operator==(const Execution&) const = default;
};

struct ModelUse {
  ModelSpec spec;
  DType weights = DType::kFloat32;  // bf16 and fp16 weights keep an fp32 master copy while trained
  bool operator==(const ModelUse&) const = default;
};

struct JobSpec {
  Workflow workflow;
  std::map<Role, ModelUse> models;
  Workload workload;
  Execution execution = {};

  const ModelSpec& model(Role role) const { return models.at(role).spec; }
  bool operator==(const JobSpec&) const = default;
};

// The job as a node sees it: one that works on greedy responses has one sample to each prompt.
JobSpec seen_by(const WorkflowNode& node, JobSpec job);

// The ModelSpec of each stage of the plan, in its order: what plan's verify() wants.
std::vector<ModelSpec> models_of(const Plan& plan, const JobSpec& job);
// verify() above, and: exactly the workflow's model-stages are there, micro_batch and dp × waves ≤
// samples.
void verify(const Plan& plan, const DevicePool& pool, const JobSpec& job);

void to_json(Json& j, const Workload& workload);
void from_json(const Json& j, Workload& workload);

}  // namespace nereus
