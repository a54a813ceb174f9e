#include "nereus/runtime/rl/kl.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/exp.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

// verl's clamps of the k3 estimator.
constexpr double kMaxLogRatio = 20;
constexpr double kMaxK3 = 10;
constexpr double kMaxRelativeError = 0.2;  // of the adaptive controller

double kl_of(const Sample& sample, size_t token, KlEstimator estimator) {
  return kl_estimate(sample.old_log_probs[token], sample.ref_log_probs[token], estimator);
}

}  // namespace

double kl_estimate(double log_prob, double ref_log_prob, KlEstimator estimator) {
  const double difference = log_prob - ref_log_prob;
  switch (estimator) {
    case KlEstimator::kK1:
      return difference;
    case KlEstimator::kAbs:
      return std::abs(difference);
    case KlEstimator::kK2:
      return 0.5 * difference * difference;
    case KlEstimator::kK3: {
      const double ratio = std::clamp(-difference, -kMaxLogRatio, kMaxLogRatio);
      return std::clamp(std::exp(ratio) - ratio - 1, -kMaxK3, kMaxK3);
    }
  }
  throw Error(ErrorCode::kInternal, "unknown KL estimator");
}

at::Tensor kl_estimate(const at::Tensor& log_prob, const at::Tensor& ref_log_prob,
                       KlEstimator estimator) {
  at::Tensor difference = log_prob - ref_log_prob;
  switch (estimator) {
    case KlEstimator::kK1:
      return difference;
    case KlEstimator::kAbs:
      return difference.abs();
    case KlEstimator::kK2:
      return 0.5 * difference.square();
    case KlEstimator::kK3: {
      const at::Tensor ratio = at::clamp(-difference, -kMaxLogRatio, kMaxLogRatio);
      return at::clamp(at::exp(ratio) - ratio - 1, -kMaxK3, kMaxK3);
    }
  }
  throw Error(ErrorCode::kInternal, "unknown KL estimator");
}

double apply_kl_penalty(Experience& experience, double coefficient, KlEstimator estimator) {
  double sum_of_means = 0;
  double sequences = 0;
  for (Sample& sample : experience) {
    sequences += sample.scored ? 1 : 0;
    sample.rewards = sample.token_scores;
    if (sample.ref_log_probs.empty()) continue;
    double sum = 0;
    for (size_t t = 0; t < sample.rewards.size(); ++t) {
      const double kl = kl_of(sample, t, estimator);
      sample.rewards[t] -= coefficient * kl;
      sum += kl;
    }
    if (sample.scored) sum_of_means += sum / static_cast<double>(sample.rewards.size());
  }
  return sequences == 0 ? 0 : sum_of_means / sequences;
}

double mean_token_kl(const Experience& experience) {
  double sum = 0;
  size_t tokens = 0;
  for (const Sample& sample : experience) {
    for (size_t t = 0; t < sample.ref_log_probs.size(); ++t) {
      sum += kl_of(sample, t, KlEstimator::kK1);
    }
    tokens += sample.ref_log_probs.size();
  }
  return tokens == 0 ? 0 : sum / static_cast<double>(tokens);
}

KlController::KlController(double coefficient, double target, double horizon)
    : coefficient_(coefficient), target_(target), horizon_(horizon) {}

void KlController::update(double kl, int64_t sequences) {
  if (horizon_ <= 0) return;
  const double error = std::clamp(kl / target_ - 1, -kMaxRelativeError, kMaxRelativeError);
  coefficient_ *= 1 + error * static_cast<double>(sequences) / horizon_;
}

}  // namespace nereus
