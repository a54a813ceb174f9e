// AdamW over flat arenas, learning-rate schedule, gradient clipping factor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nereus/core/workflow/objective.h"

namespace nereus {

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
