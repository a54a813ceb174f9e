// KL estimators and the coefficient's controller.
#pragma once

#include <ATen/core/Tensor.h>

#include "nereus/core/workflow/objective.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

double kl_estimate(double log_prob, double ref_log_prob, KlEstimator estimator);
// Elementwise, differentiable in log_prob.
at::Tensor kl_estimate(const at::Tensor& log_prob, const at::Tensor& ref_log_prob,
                       KlEstimator estimator);

// rewards = token_scores - coefficient · KL(old, ref) per token. Returns the mean over scored
// sequences of the per-sequence mean KL (what the adaptive controller and actor/reward_kl_penalty
// use), 0 if there are none.
double apply_kl_penalty(Experience& experience, double coefficient, KlEstimator estimator);
// Token-level mean of k1 between old and ref: the usual "KL to the reference, nats per token".
double mean_token_kl(const Experience& experience);

// coef *= 1 + clip(kl / target - 1, ±0.2) · n / horizon after each step, n sequences; fixed if
// horizon is 0.
class KlController {
 public:
  KlController(double coefficient, double target, double horizon);
  double coefficient() const { return coefficient_; }
  void update(double kl, int64_t sequences);
  void restore(double coefficient) { coefficient_ = coefficient; }

 private:
  double coefficient_;
  double target_;
  double horizon_;
};

}  // namespace nereus
