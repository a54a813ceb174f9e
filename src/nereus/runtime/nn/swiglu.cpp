#include "nereus/runtime/nn/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nereus/runtime/cuda/nn_ops.h"

namespace nereus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor forward_of(const at::Tensor& gate_up) {
  if (cuda::takes(gate_up, gate_up.size(1) / 2)) return cuda::swiglu(gate_up);
  const std::vector<at::Tensor> halves = gate_up.chunk(2, 1);
  return at::silu(halves[0]).mul_(halves[1]);
}

at::Tensor backward_of(const at::Tensor& grad, const at::Tensor& gate_up) {
  if (cuda::takes(gate_up, gate_up.size(1) / 2)) return cuda::swiglu_backward(grad, gate_up);
  const std::vector<at::Tensor> halves = gate_up.chunk(2, 1);
  return at::cat({at::silu_backward(grad * halves[1], halves[0]), at::silu(halves[0]).mul_(grad)},
                 1);
}

struct SwiGlu : Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up) {
    ctx->save_for_backward({gate_up});
    return forward_of(gate_up);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {backward_of(grads[0].contiguous(), ctx->get_saved_variables()[0])};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up) {
  return at::GradMode::is_enabled() ? SwiGlu::apply(gate_up) : forward_of(gate_up);
}

}  // namespace nereus
