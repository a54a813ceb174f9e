// The metrics of a step under verl's names (verl/trainer/ppo/metric_utils.py).
#pragma once

#include "nereus/core/job/job.h"
#include "nereus/runtime/live/executor.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// critic/{score,rewards,advantages,returns,values}/{mean,max,min}, response_length/*,
// prompt_length/*, response/aborted_ratio; reward/excluded, the samples that were not scored, which
// are in none of critic/*; frac_reward_zero_std (TRL's name), the share of the groups of several
// scored responses whose scores are all equal, if there are such groups.
void add_batch_metrics(const Experience& experience, int64_t response_limit, Metrics& metrics);
// actor/ref_kl (nats per token to the reference) and training/rollout_probs_diff_*, of samples that
// have old log-probabilities.
void add_log_prob_metrics(const Experience& experience, Metrics& metrics);
// critic/vf_explained_var over the tokens of scored samples, if there are any; needs returns.
void add_value_metrics(const Experience& experience, Metrics& metrics);
// timing_s/*, timing_per_token_ms/*, perf/*, training/global_step. perf/throughput is tokens per
// second and device of the plan; perf/max_memory_allocated_gb the peak of the fullest device in
// GiB, in this step (verl's is that since the start).
void add_performance_metrics(const StepReport& report, Metrics& metrics);

}  // namespace nereus
