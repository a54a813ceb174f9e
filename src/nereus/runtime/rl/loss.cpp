#include "nereus/runtime/rl/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

constexpr double kMaxLogRatio = 20;  // verl's clamp of log π - log π_old

at::Tensor weighted_sum(const at::Tensor& weights, const at::Tensor& values) {
  return (weights * values).sum();
}

// Metrics as tensors, brought to the host in one copy.
using TensorMetrics = std::vector<std::pair<std::string, at::Tensor>>;

std::map<std::string, double> to_host(const TensorMetrics& metrics) {
  std::vector<at::Tensor> values;
  for (const auto& metric : metrics) values.push_back(metric.second.detach().to(at::kDouble));
  const at::Tensor host = at::stack(values).to(at::kCPU);
  std::map<std::string, double> result;
  for (size_t i = 0; i < metrics.size(); ++i) {
    result[metrics[i].first] = host.const_data_ptr<double>()[i];
  }
  return result;
}

struct ClippedPolicyLoss {
  at::Tensor per_token;
  at::Tensor clipped;        // where the clip raised the loss
  at::Tensor clipped_lower;  // where the dual clip lowered it
  at::Tensor log_ratio;
};

// L = max(-A r, -A clip(r)), and for A < 0 at most -A c (dual clip; Ye et al. 2020).
ClippedPolicyLoss clipped_policy_loss(const at::Tensor& log_probs, const PolicyTargets& targets,
                                      const PolicyLossOptions& options) {
  const at::Tensor& advantages = targets.advantages;
  const at::Tensor log_ratio =
      at::clamp(log_probs - targets.old_log_probs, -kMaxLogRatio, kMaxLogRatio);
  const at::Tensor ratio = at::exp(log_ratio);
  const at::Tensor plain = -advantages * ratio;
  const at::Tensor clipped =
      -advantages * at::clamp(ratio, 1 - options.clip_ratio_low, 1 + options.clip_ratio_high);
  const at::Tensor loss = at::maximum(plain, clipped);
  const at::Tensor is_clipped = clipped.gt(plain);
  if (options.clip_ratio_c == 0) return {loss, is_clipped, at::zeros_like(is_clipped), log_ratio};

  const at::Tensor bound = -advantages * options.clip_ratio_c;
  const at::Tensor negative = advantages.lt(0);
  return {at::where(negative, at::minimum(loss, bound), loss), is_clipped,
          loss.gt(bound).logical_and(negative), log_ratio};
}

}  // namespace

std::vector<double> sample_weights(LossAggregation mode, const std::vector<int64_t>& lengths,
                                   double horizon) {
  const auto tokens =
      static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  const auto sequences =
      static_cast<double>(std::ranges::count_if(lengths, [](int64_t n) { return n > 0; }));
  std::vector<double> weights;
  weights.reserve(lengths.size());
  for (const int64_t length : lengths) {
    const auto weight = [&] {
      switch (mode) {
        case LossAggregation::kTokenMean:
          return 1 / tokens;
        case LossAggregation::kTokenSum:
          return 1.0;
        case LossAggregation::kSeqMeanTokenSum:
          return 1 / sequences;
        case LossAggregation::kSeqMeanTokenMean:
          return 1 / (sequences * static_cast<double>(length));
        case LossAggregation::kSeqMeanTokenSumNorm:
          return 1 / (sequences * horizon);
      }
      throw Error(ErrorCode::kInternal, "unknown loss aggregation");
    };
    weights.push_back(length > 0 ? weight() : 0);
  }
  return weights;
}

Loss policy_loss(const PolicyOutputs& outputs, const PolicyTargets& targets,
                 const PolicyLossOptions& options) {
  const auto policy = clipped_policy_loss(outputs.log_probs, targets, options);
  const auto token_mean = [&](const at::Tensor& values) {
    return weighted_sum(targets.metric_weights, values);
  };
  at::Tensor loss = weighted_sum(targets.weights, policy.per_token);
  TensorMetrics metrics = {{"actor/pg_loss", loss},
                           {"actor/pg_clipfrac", token_mean(policy.clipped)},
                           {"actor/pg_clipfrac_lower", token_mean(policy.clipped_lower)},
                           {"actor/ppo_kl", token_mean(-policy.log_ratio)}};
  if (outputs.entropy.defined()) {
    metrics.emplace_back("actor/entropy", token_mean(outputs.entropy));
  }
  if (options.entropy_coeff != 0) {
    NEREUS_CHECK(outputs.entropy.defined(), "policy_loss: entropy_coeff needs the entropy");
    loss = loss - options.entropy_coeff * weighted_sum(targets.weights, outputs.entropy);
  }
  if (options.use_kl_loss) {
    const at::Tensor kl =
        weighted_sum(targets.weights,
                     kl_estimate(outputs.log_probs, targets.ref_log_probs, options.kl_loss_type));
    metrics.emplace_back("actor/kl_loss", kl);
    loss = loss + options.kl_loss_coef * kl;
  }
  return {loss, to_host(metrics)};
}

Loss value_loss(const at::Tensor& values, const ValueTargets& targets,
                const ValueLossOptions& options) {
  const at::Tensor clipped =
      targets.old_values +
      at::clamp(values - targets.old_values, -options.cliprange_value, options.cliprange_value);
  const at::Tensor plain_error = (values - targets.returns).square();
  const at::Tensor clipped_error = (clipped - targets.returns).square();
  const at::Tensor loss =
      0.5 * weighted_sum(targets.weights, at::maximum(plain_error, clipped_error));
  const TensorMetrics metrics = {
      {"critic/vf_loss", loss},
      {"critic/vf_clipfrac", weighted_sum(targets.metric_weights, clipped_error.gt(plain_error))},
      {"critic/vpred_mean", weighted_sum(targets.metric_weights, values)}};
  return {loss, to_host(metrics)};
}

}  // namespace nereus
