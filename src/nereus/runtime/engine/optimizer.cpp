#include "nereus/runtime/engine/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

double learning_rate(const OptimizerOptions& options, int64_t step) {
  if (step < options.lr_warmup_steps) {
    return options.lr * static_cast<double>(step) / static_cast<double>(options.lr_warmup_steps);
  }
  if (options.lr_scheduler == "constant") return options.lr;
  const int64_t decay_steps = std::max<int64_t>(1, options.total_steps - options.lr_warmup_steps);
  const double done = std::min(
      1.0, static_cast<double>(step - options.lr_warmup_steps) / static_cast<double>(decay_steps));
  const double share =
      options.lr_scheduler == "linear" ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return options.lr * (options.min_lr_ratio + (1 - options.min_lr_ratio) * share);
}

double clip_factor(const OptimizerOptions& options, double norm) {
  if (options.grad_clip <= 0) return 1;
  // torch.nn.utils.clip_grad_norm_ adds 1e-6 as well.
  return std::min(1.0, options.grad_clip / (norm + 1e-6));
}

namespace {

// One pass over memory.
void fused_adamw_step(at::Tensor& parameter, at::Tensor& gradient, at::Tensor& exp_avg,
                      at::Tensor& exp_avg_sq, const AdamWStep& step,
                      const OptimizerOptions& options) {
  const auto scalar = [&](double value) {
    return at::full({}, value, parameter.options().dtype(at::kFloat));
  };
  std::optional<at::Tensor> divisor;
  if (step.gradient_factor != 1) divisor = scalar(1 / step.gradient_factor);
  at::_fused_adamw_(parameter, gradient, exp_avg, exp_avg_sq, {},
                    scalar(static_cast<double>(step.number)), step.lr, options.beta1, options.beta2,
                    options.weight_decay, options.eps, /*amsgrad=*/false,
                    /*maximize=*/false, divisor);
}

}  // namespace

void adamw_step(at::Tensor& parameter, at::Tensor& gradient, at::Tensor& exp_avg,
                at::Tensor& exp_avg_sq, const AdamWStep& step, const OptimizerOptions& options) {
  if (parameter.is_cuda()) {
    return fused_adamw_step(parameter, gradient, exp_avg, exp_avg_sq, step, options);
  }
  const auto t = static_cast<double>(step.number);
  const double correction1 = 1 - std::pow(options.beta1, t);
  const double correction2 = 1 - std::pow(options.beta2, t);
  gradient.mul_(step.gradient_factor);
  parameter.mul_(1 - step.lr * options.weight_decay);
  exp_avg.lerp_(gradient, 1 - options.beta1);
  exp_avg_sq.mul_(options.beta2).addcmul_(gradient, gradient, 1 - options.beta2);
  const at::Tensor denominator = exp_avg_sq.sqrt().div_(std::sqrt(correction2)).add_(options.eps);
  parameter.addcdiv_(exp_avg, denominator, -step.lr / correction1);
}

}  // namespace nereus
