// What a job optimises and how: advantages, KL, losses, optimizer. Values with verl's defaults; the
// formulas are in runtime/rl and runtime/engine.
#pragma once

#include <cstdint>
#include <string>

#include "nereus/core/workflow/algorithm.h"

namespace nereus {

struct AdvantageOptions {
  AdvantageEstimator estimator = AdvantageEstimator::kGae;
  bool norm_by_std = true;  // GRPO: divide by the standard deviation of the group
  double gamma = 1;         // GAE and REINFORCE++
  double lam = 1;           // GAE
};

// verl's names: "kl" (k1), "abs", "mse" (k2), "low_var_kl" (k3; input clamped to ±20, output to
// ±10), and their short forms "k1", "k2", "k3".
enum class KlEstimator { kK1, kAbs, kK2, kK3 };
// Throws Error(kInvalidInput) listing the legal names, as does the next one.
KlEstimator parse_kl_estimator(const std::string& name);
std::string to_string(KlEstimator estimator);  // "kl", "abs", "mse", "low_var_kl"

enum class LossAggregation {
  kTokenMean,
  kTokenSum,
  kSeqMeanTokenSum,
  kSeqMeanTokenMean,
  kSeqMeanTokenSumNorm
};
LossAggregation parse_loss_aggregation(const std::string& name);  // verl's "token-mean", …
std::string to_string(LossAggregation aggregation);

struct PolicyLossOptions {
  double clip_ratio_low = 0.2;
  double clip_ratio_high = 0.2;
  double clip_ratio_c = 3.0;  // dual clip; 0: off
  double entropy_coeff = 0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  KlEstimator kl_loss_type = KlEstimator::kK3;
  LossAggregation aggregation = LossAggregation::kTokenMean;
};

// Throws Error(kInvalidInput) naming the option (verl's name), its value and the legal ones, as do
// the others. The k1 estimator is refused as a loss: its gradient has no term of the reference.
void verify(const PolicyLossOptions& options);

struct ValueLossOptions {
  double cliprange_value = 0.5;
  LossAggregation aggregation = LossAggregation::kTokenMean;
};
void verify(const ValueLossOptions& options);

struct PpoOptions {
  AdvantageOptions advantage;
  bool use_kl_in_reward = false;
  KlEstimator kl_penalty = KlEstimator::kK1;
  double kl_coef = 0.001;
  bool adaptive_kl = false;
  double target_kl = 0.1;
  double kl_horizon = 10000;
  int64_t mini_batch = 0;  // prompts per optimizer step (× rollout.n sequences)
  int epochs = 1;
  // Old log-probabilities by a pass of their own also where the update could compute them.
  bool always_old_log_probs = false;
  PolicyLossOptions policy;
  ValueLossOptions value;
};

struct OptimizerOptions {
  double lr = 1e-6;  // of the peak
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double grad_clip = 1.0;       // global norm; 0: off
  int64_t lr_warmup_steps = 0;  // RL steps, linear from 0
  // Or "cosine", "linear": decay over total_steps to min_lr_ratio.
  std::string lr_scheduler = "constant";
  double min_lr_ratio = 0;
  int64_t total_steps = 0;  // RL steps of the whole run, for the decay
};
void verify(const OptimizerOptions& options);

}  // namespace nereus
