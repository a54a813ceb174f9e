#include "nereus/core/workflow/objective.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

// The first name of each is the one that is written.
constexpr std::pair<const char*, KlEstimator> kKlEstimators[] = {
    {"kl", KlEstimator::kK1},         {"abs", KlEstimator::kAbs}, {"mse", KlEstimator::kK2},
    {"low_var_kl", KlEstimator::kK3}, {"k1", KlEstimator::kK1},   {"k2", KlEstimator::kK2},
    {"k3", KlEstimator::kK3}};

constexpr std::pair<const char*, LossAggregation> kAggregations[] = {
    {"token-mean", LossAggregation::kTokenMean},
    {"token-sum", LossAggregation::kTokenSum},
    {"seq-mean-token-sum", LossAggregation::kSeqMeanTokenSum},
    {"seq-mean-token-mean", LossAggregation::kSeqMeanTokenMean},
    {"seq-mean-token-sum-norm", LossAggregation::kSeqMeanTokenSumNorm}};

void verify_range(const char* name, double value, bool legal, const char* range) {
  if (legal && std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalidInput,
              std::string(name) + " is " + std::to_string(value) + "; it must be " + range);
}

void require_that(bool ok, const std::string& option, double value, const std::string& legal) {
  if (ok) return;
  throw Error(ErrorCode::kInvalidInput,
              "optim." + option + " is " + format_number(value) + "; it must be " + legal);
}

template <class Names, class Value>
std::string name_of(const Names& names, Value value) {
  const auto found =
      std::ranges::find(names, value, [](const auto& entry) { return entry.second; });
  NEREUS_CHECK(found != std::end(names), "an option without a name");
  return found->first;
}

}  // namespace

std::string to_string(KlEstimator estimator) { return name_of(kKlEstimators, estimator); }

std::string to_string(LossAggregation aggregation) { return name_of(kAggregations, aggregation); }

KlEstimator parse_kl_estimator(const std::string& name) {
  for (const auto& [text, estimator] : kKlEstimators) {
    if (name == text) return estimator;
  }
  throw Error(ErrorCode::kInvalidInput, "unknown KL estimator \"" + name +
                                            "\"; use kl (k1), abs, mse (k2) or low_var_kl (k3)");
}

LossAggregation parse_loss_aggregation(const std::string& name) {
  std::string legal;
  for (const auto& [text, mode] : kAggregations) {
    if (name == text) return mode;
    legal += (legal.empty() ? "" : ", ") + std::string(text);
  }
  throw Error(ErrorCode::kInvalidInput, "unknown loss_agg_mode \"" + name + "\"; use " + legal);
}

void verify(const PolicyLossOptions& options) {
  verify_range("clip_ratio_low", options.clip_ratio_low,
               options.clip_ratio_low >= 0 && options.clip_ratio_low < 1, "in [0, 1)");
  verify_range("clip_ratio_high", options.clip_ratio_high, options.clip_ratio_high >= 0,
               "at least 0");
  verify_range("clip_ratio_c", options.clip_ratio_c,
               options.clip_ratio_c == 0 || options.clip_ratio_c > 1, "above 1, or 0 for none");
  verify_range("entropy_coeff", options.entropy_coeff, true, "finite");
  verify_range("kl_loss_coef", options.kl_loss_coef, options.kl_loss_coef >= 0, "at least 0");
  if (options.use_kl_loss && options.kl_loss_type == KlEstimator::kK1) {
    throw Error(ErrorCode::kInvalidInput,
                "kl_loss_type kl (k1) does not work as a loss: its gradient does not depend on the "
                "reference; use low_var_kl (k3) or mse (k2), or use_kl_in_reward");
  }
}

void verify(const ValueLossOptions& options) {
  verify_range("cliprange_value", options.cliprange_value, options.cliprange_value >= 0,
               "at least 0");
}

void verify(const OptimizerOptions& options) {
  require_that(std::isfinite(options.lr) && options.lr >= 0, "lr", options.lr, "0 or more");
  require_that(options.beta1 >= 0 && options.beta1 < 1, "betas[0]", options.beta1, "in [0, 1)");
  require_that(options.beta2 >= 0 && options.beta2 < 1, "betas[1]", options.beta2, "in [0, 1)");
  require_that(options.eps > 0, "eps", options.eps, "positive");
  require_that(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  require_that(options.grad_clip >= 0, "grad_clip", options.grad_clip, "0 (off) or positive");
  require_that(options.lr_warmup_steps >= 0, "lr_warmup_steps",
               static_cast<double>(options.lr_warmup_steps), "0 or more");
  require_that(options.min_lr_ratio >= 0 && options.min_lr_ratio <= 1, "min_lr_ratio",
               options.min_lr_ratio, "in [0, 1]");
  if (options.lr_scheduler != "constant" && options.lr_scheduler != "cosine" &&
      options.lr_scheduler != "linear") {
    throw Error(ErrorCode::kInvalidInput, "optim.lr_scheduler_type is \"" + options.lr_scheduler +
                                              "\"; legal: constant, cosine, linear");
  }
}

}  // namespace nereus
