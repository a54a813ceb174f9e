#include "nereus/runtime/nn/stacked_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace nereus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct StackedLinear : Function<StackedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& whole,
                            at::TensorList weights) {
    std::vector<int64_t> rows;
    for (const at::Tensor& weight : weights) rows.push_back(weight.size(0));
    ctx->saved_data["rows"] = rows;
    ctx->save_for_backward({x, whole});
    return at::linear(x, whole);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous();
    variable_list out = {grad.mm(saved[1]), at::Tensor()};
    const at::Tensor grad_whole = grad.t().mm(saved[0]);
    for (const at::Tensor& part :
         grad_whole.split_with_sizes(ctx->saved_data["rows"].toIntVector(), 0)) {
      out.push_back(part);
    }
    return out;
  }
};

bool follows(const at::Tensor& second, const at::Tensor& first) {
  return second.is_alias_of(first) && first.is_contiguous() && second.is_contiguous() &&
         second.storage_offset() == first.storage_offset() + first.numel();
}

}  // namespace

LinearStack stack(std::vector<at::Tensor> weights, std::vector<at::Tensor> biases) {
  LinearStack stack{.weights = std::move(weights), .biases = std::move(biases)};
  bool together = stack.biases.empty();
  int64_t rows = stack.weights.front().size(0);
  for (size_t i = 1; i < stack.weights.size(); ++i) {
    together = together && follows(stack.weights[i], stack.weights[i - 1]);
    rows += stack.weights[i].size(0);
  }
  if (together) {
    const at::Tensor first = stack.weights.front().detach();
    stack.whole = first.as_strided({rows, first.size(1)}, first.strides());
  }
  return stack;
}

at::Tensor linear(const at::Tensor& x, const LinearStack& stack) {
  if (stack.whole.defined()) {
    if (!at::GradMode::is_enabled()) return at::linear(x, stack.whole);
    return StackedLinear::apply(x, stack.whole, at::TensorList(stack.weights));
  }
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < stack.weights.size(); ++i) {
    const auto bias = stack.biases.empty() ? std::nullopt : std::optional(stack.biases[i]);
    outputs.push_back(at::linear(x, stack.weights[i], bias));
  }
  return at::cat(outputs, 1);
}

}  // namespace nereus
