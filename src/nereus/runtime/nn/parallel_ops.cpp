#include "nereus/runtime/nn/parallel_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

namespace nereus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What a recorded graph keeps of the communicator, which outlives it.
struct TpHandle final : torch::CustomClassHolder {
  explicit TpHandle(Communicator* tp) : tp(tp) {}
  Communicator* tp;
};

at::Tensor all_reduced(const at::Tensor& x, Communicator& tp) {
  at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  tp.all_reduce(sum);
  return sum;
}

struct CopyToTp : Function<CopyToTp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Communicator* tp) {
    ctx->saved_data["tp"] = c10::IValue::make_capsule(c10::make_intrusive<TpHandle>(tp));
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto handle = ctx->saved_data["tp"].toCapsule();
    return {all_reduced(grads[0], *static_cast<TpHandle&>(*handle).tp), at::Tensor()};
  }
};

struct ReduceFromTp : Function<ReduceFromTp> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, Communicator* tp) {
    return all_reduced(x, *tp);
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0], at::Tensor()};
  }
};

// The all-reduce after the product passes gradients on unchanged.
struct UnevaluatedResidualLinear : Function<UnevaluatedResidualLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& residual, const at::Tensor& x,
                            const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    return at::empty({1, 1}, residual.options()).expand(residual.sizes());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {grads[0], grads[0].mm(saved[1]), grads[0].t().mm(saved[0])};
  }
};

}  // namespace

at::Tensor copy_to_tp(const at::Tensor& x, Communicator& tp) {
  if (tp.size() == 1 || !at::GradMode::is_enabled()) return x;
  return CopyToTp::apply(x, &tp);
}

at::Tensor reduce_from_tp(const at::Tensor& x, Communicator& tp) {
  if (tp.size() == 1) return x;
  if (at::GradMode::is_enabled()) return ReduceFromTp::apply(x, &tp);
  at::Tensor sum = x;  // nobody else holds a partial sum, so it may be reduced in place
  tp.all_reduce(sum);
  return sum;
}

at::Tensor vocab_parallel_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                                    int64_t vocab_begin, Communicator& tp) {
  if (tp.size() == 1) return at::embedding(weight, tokens);
  const at::Tensor local = tokens - vocab_begin;
  const at::Tensor inside = local.ge(0).logical_and_(local.lt(weight.size(0)));
  const at::Tensor rows = at::embedding(weight, local * inside) * inside.unsqueeze(-1);
  return reduce_from_tp(rows, tp);
}

at::Tensor unevaluated_residual_linear(const at::Tensor& residual, const at::Tensor& x,
                                       const at::Tensor& weight) {
  return UnevaluatedResidualLinear::apply(residual, x, weight);
}

}  // namespace nereus
