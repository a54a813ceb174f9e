// AdamW over flat arenas, learning-rate schedule, gradient clipping factor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace nereus {

struct OptimizerOptions {
  double lr = 1e-6;  // of the peak
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double grad_clip = 1.0;       // global norm; 0: off
  int64_t lr_warmup_steps = 0;  // RL steps, linear from 0
  std::string lr_scheduler =
      "constant";  // or "cosine", "linear": decay over total_steps to min_lr_ratio
  double min_lr_ratio = 0;
  int64_t total_steps = 0;  // RL steps of the whole run, for the decay
};

// Throws Error(kInvalidInput) naming the option and the legal values.
void verify(const OptimizerOptions& options);

// Learning rate of all optimizer steps of the RL step number `step` (from 0), as verl's schedulers
// give it: 0 in the first step of a warm-up, options.lr in the first step after it.
double learning_rate(const OptimizerOptions& options, int64_t step);

// Factor that brings a gradient of norm `norm` down to options.grad_clip (1 if it is below or off).
double clip_factor(const OptimizerOptions& options, double norm);

struct AdamWStep {
  int64_t number = 1;  // from 1
  double lr = 0;
  double gradient_factor = 1;  // the gradient is multiplied by it first
};

// One AdamW step in place (decoupled weight decay, Loshchilov & Hutter 2019; torch.optim.AdamW's
// order of operations). All 1-D, same length and device; `parameter`, moments fp32 or fp64. The
// gradient may be overwritten. Elementwise, so any cut of the arena gives the same bits.
void adamw_step(at::Tensor& parameter, at::Tensor& gradient, at::Tensor& exp_avg,
                at::Tensor& exp_avg_sq, const AdamWStep& step, const OptimizerOptions& options);

}  // namespace nereus
