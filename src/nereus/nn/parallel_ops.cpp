#include "nereus/nn/parallel_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/div.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros_like.h>
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

// What forward and backward of the cut softmax share. x = logits / temperature - the row's maximum.
struct CutSoftmax {
  at::Tensor x;        // [n, v]
  at::Tensor inside;   // [n] bool: the target lives here
  at::Tensor columns;  // [n] its local column, 0 if it does not
};

CutSoftmax shifted_logits(const at::Tensor& logits, const at::Tensor& targets, double temperature,
                          int64_t vocab_begin, Communicator& tp) {
  const bool fp64 = logits.scalar_type() == at::kDouble;
  at::Tensor x = logits.to(fp64 ? at::kDouble : at::kFloat);
  if (temperature != 1) x = x / temperature;
  at::Tensor largest = x.amax(1, /*keepdim=*/true);
  tp.all_reduce(largest, ReduceOp::kMax);
  const at::Tensor local = targets - vocab_begin;
  const at::Tensor inside = local.ge(0).logical_and_(local.lt(logits.size(1)));
  return {x - largest, inside, local * inside};
}

// Log-probability and entropy as one node: its backward needs only the probabilities of the local
// part.
struct CutLogProbs : Function<CutLogProbs> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits,
                               const at::Tensor& targets, double temperature, int64_t vocab_begin,
                               bool with_entropy, Communicator* tp) {
    const CutSoftmax cut = shifted_logits(logits, targets, temperature, vocab_begin, *tp);
    const at::Tensor column = cut.columns.unsqueeze(1);
    at::Tensor probabilities = cut.x.exp();
    std::vector<at::Tensor> sums = {probabilities.sum(1),
                                    cut.x.gather(1, column).squeeze(1) * cut.inside};
    if (with_entropy) sums.push_back((probabilities * cut.x).sum(1));
    at::Tensor sum = at::stack(sums);  // one collective for all of them
    tp->all_reduce(sum);
    const at::Tensor log_z = sum[0].log();
    probabilities.div_(sum[0].unsqueeze(1));
    const at::Tensor entropy = with_entropy ? log_z - sum[2] / sum[0] : at::Tensor();
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({probabilities, column, cut.inside, entropy});
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["dtype"] = static_cast<int64_t>(logits.scalar_type());
    return {sum[1] - log_z, with_entropy ? entropy : at::zeros_like(log_z)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &probabilities = saved[0], &column = saved[1], &inside = saved[2],
                     &entropy = saved[3];
    at::Tensor grad = at::zeros_like(probabilities);
    if (grads[0].defined()) {  // d log p_target / dx = one-hot - p
      const at::Tensor g = grads[0].unsqueeze(1);
      grad = probabilities * g.neg();
      grad.scatter_add_(1, column, g * inside.unsqueeze(1));
    }
    if (entropy.defined() && grads[1].defined()) {  // dH / dx = -p (log p + H)
      const at::Tensor slope =
          at::xlogy(probabilities, probabilities).add_(probabilities * entropy.unsqueeze(1));
      grad.sub_(slope * grads[1].unsqueeze(1));
    }
    grad.div_(ctx->saved_data["temperature"].toDouble());
    const auto dtype = static_cast<at::ScalarType>(ctx->saved_data["dtype"].toInt());
    return {grad.to(dtype), {}, {}, {}, {}, {}};
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

LogProbs vocab_parallel_log_probs(const at::Tensor& logits, const at::Tensor& targets,
                                  double temperature, int64_t vocab_begin, bool with_entropy,
                                  Communicator& tp) {
  const variable_list out =
      CutLogProbs::apply(logits, targets, temperature, vocab_begin, with_entropy, &tp);
  return {out[0], with_entropy ? out[1] : at::Tensor()};
}

}  // namespace nereus
