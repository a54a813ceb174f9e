// PPO losses as verl computes them, over the response tokens of one micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "nereus/runtime/rl/kl.h"

namespace nereus {

// Every mode is a weighted sum over tokens. The weight of each token of each sample of a
// mini-batch, from all its response lengths, so that the loss does not depend on micro-batches or
// replicas; one entry per sample. Samples without tokens do not count as sequences. `horizon`: for
// seq-mean-token-sum-norm.
std::vector<double> sample_weights(LossAggregation mode, const std::vector<int64_t>& lengths,
                                   double horizon);

// Constants of the tokens of one micro-batch, [n] each, on the model's device.
struct PolicyTargets {
  at::Tensor old_log_probs;
  at::Tensor advantages;
  at::Tensor ref_log_probs;   // undefined unless use_kl_loss
  at::Tensor weights;         // aggregation weights
  at::Tensor metric_weights;  // 1 / tokens of the mini-batch: metrics are token means
};
// What the actor says of the same tokens now, [n] each, differentiable.
struct PolicyOutputs {
  at::Tensor log_probs;
  at::Tensor entropy;  // undefined unless it is in the loss or in the metrics
};
struct ValueTargets {
  at::Tensor old_values;
  at::Tensor returns;
  at::Tensor weights;
  at::Tensor metric_weights;
};

struct Loss {
  at::Tensor loss;                        // scalar, differentiable
  std::map<std::string, double> metrics;  // additive over micro-batches and replicas
};

// Metrics: actor/pg_loss, actor/kl_loss (if used), both aggregated as the loss is; as means over
// tokens actor/pg_clipfrac, actor/pg_clipfrac_lower, actor/ppo_kl, actor/entropy (if the outputs
// have it).
Loss policy_loss(const PolicyOutputs& outputs, const PolicyTargets& targets,
                 const PolicyLossOptions& options);
// `values`: the critic's, [n], differentiable. Metrics: critic/vf_loss, critic/vf_clipfrac,
// critic/vpred_mean.
Loss value_loss(const at::Tensor& values, const ValueTargets& targets,
                const ValueLossOptions& options);

}  // namespace nereus
