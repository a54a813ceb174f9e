// The gated activation of feed-forward blocks.
#pragma once

#include <ATen/core/Tensor.h>

namespace nereus {

// gate_up [n, 2 · f] → silu(gate) · up [n, f]. Differentiable; keeps nothing but its input.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace nereus
