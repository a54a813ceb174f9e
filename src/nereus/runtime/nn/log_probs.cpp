#include "nereus/runtime/nn/log_probs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "nereus/runtime/cuda/nn_ops.h"

namespace nereus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Of x = logits / temperature, by row, as cuda::softmax_sums() gives them.
enum Sum { kExp, kTarget, kWeighted, kMax, kSums };

at::ScalarType sum_type(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor scaled(const at::Tensor& logits, double temperature) {
  const at::Tensor x = logits.to(sum_type(logits));
  return temperature == 1 ? x : x / temperature;
}

void add_up(const at::Tensor& logits, const at::Tensor& columns, double temperature,
            const at::Tensor& sums) {
  if (cuda::takes(logits, 0)) return cuda::softmax_sums(logits, columns, temperature, sums);
  const at::Tensor x = scaled(logits, temperature);
  const at::Tensor largest = x.amax(1, /*keepdim=*/true);
  const at::Tensor shifted = x - largest, exp = shifted.exp();
  sums[kMax].copy_(largest.squeeze(1));
  sums[kExp].copy_(exp.sum(1));
  sums[kTarget].copy_(x.gather(1, columns.clamp_min(0).unsqueeze(1)).squeeze(1) * columns.ge(0));
  sums[kWeighted].copy_((exp * shifted).sum(1));
}

// What the gradient of one row's logits depends on besides them, all [n].
struct RowGradient {
  at::Tensor columns, log_z, entropy, grad_log_probs, grad_entropy;

  RowGradient rows(int64_t begin, int64_t count) const {
    const auto part = [&](const at::Tensor& of_all) { return of_all.narrow(0, begin, count); };
    return {part(columns), part(log_z), part(entropy), part(grad_log_probs), part(grad_entropy)};
  }
};

// May overwrite the logits.
at::Tensor gradient_of_logits(const at::Tensor& logits, const RowGradient& row,
                              double temperature) {
  if (cuda::takes(logits, 0)) {
    cuda::softmax_backward(logits, row.columns, temperature, row.log_z, row.entropy,
                           row.grad_log_probs, row.grad_entropy);
    return logits;
  }
  at::Tensor log_p = scaled(logits, temperature) - row.log_z.unsqueeze(1);
  // d log p_target / dx = one-hot - p;  dH / dx = -p (log p + H)
  at::Tensor slope = log_p + row.entropy.unsqueeze(1);
  slope.mul_(row.grad_entropy.unsqueeze(1)).add_(row.grad_log_probs.unsqueeze(1));
  at::Tensor grad = log_p.exp_().mul_(slope).neg_();
  grad.scatter_add_(1, row.columns.clamp_min(0).unsqueeze(1),
                    (row.grad_log_probs * row.columns.ge(0)).unsqueeze(1));
  return grad.div_(temperature).to(logits.scalar_type());
}

struct ChunkedLogProbs : Function<ChunkedLogProbs> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden,
                               const at::Tensor& weight, const at::Tensor& targets,
                               const LogProbOptions& options, Communicator* tp) {
    const int64_t n = hidden.size(0), vocab = weight.size(0);
    const int64_t chunk = std::max<int64_t>(1, options.chunk_elements / vocab);
    const at::Tensor local = targets - options.vocab_begin;
    const at::Tensor columns = local.masked_fill(local.lt(0).logical_or_(local.ge(vocab)), -1);
    const at::Tensor sums = at::empty({kSums, n}, hidden.options().dtype(sum_type(hidden)));
    at::Tensor kept;
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t rows = std::min(chunk, n - begin);
      const at::Tensor logits = at::linear(hidden.narrow(0, begin, rows), weight);
      add_up(logits, columns.narrow(0, begin, rows), options.temperature,
             sums.narrow(1, begin, rows));
      if (rows == n) kept = logits;
    }
    at::Tensor largest = sums[kMax].clone();
    tp->all_reduce(largest, ReduceOp::kMax);
    // With respect to the largest logit of all ranks; one collective for all sums.
    const at::Tensor shift = sums[kMax] - largest, scale = shift.exp();
    sums[kWeighted].add_(shift * sums[kExp]).mul_(scale);
    sums[kExp].mul_(scale);
    at::Tensor totals = sums.narrow(0, 0, kMax);
    tp->all_reduce(totals);
    const at::Tensor log_sum = totals[kExp].log();
    const at::Tensor log_z = largest + log_sum;
    const at::Tensor entropy = log_sum - totals[kWeighted] / totals[kExp];

    ctx->set_materialize_grads(false);
    ctx->save_for_backward({hidden, weight, columns, log_z, entropy, kept});
    ctx->saved_data["temperature"] = options.temperature;
    ctx->saved_data["chunk"] = chunk;
    return {totals[kTarget] - log_z, entropy};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &log_z = saved[3], &kept = saved[5];
    const auto or_zero = [&](const at::Tensor& grad) {
      return grad.defined() ? grad.contiguous() : at::zeros_like(log_z);
    };
    const RowGradient row{saved[2], log_z, saved[4], or_zero(grads[0]), or_zero(grads[1])};
    const double temperature = ctx->saved_data["temperature"].toDouble();
    const int64_t n = hidden.size(0), chunk = ctx->saved_data["chunk"].toInt();
    const at::Tensor grad_hidden = at::empty_like(hidden);
    at::Tensor grad_weight = at::zeros_like(weight);
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t rows = std::min(chunk, n - begin);
      const at::Tensor part = hidden.narrow(0, begin, rows);
      const at::Tensor logits = kept.defined() ? kept : at::linear(part, weight);
      const at::Tensor grad = gradient_of_logits(logits, row.rows(begin, rows), temperature);
      grad_hidden.narrow(0, begin, rows).copy_(grad.mm(weight));
      grad_weight.addmm_(grad.t(), part);
    }
    return {grad_hidden, grad_weight, {}, {}, {}};
  }
};

}  // namespace

LogProbs vocab_parallel_log_probs(const at::Tensor& hidden, const at::Tensor& weight,
                                  const at::Tensor& targets, const LogProbOptions& options,
                                  Communicator& tp) {
  const variable_list out = ChunkedLogProbs::apply(hidden, weight, targets, options, &tp);
  return {out[0], options.with_entropy ? out[1] : at::Tensor()};
}

}  // namespace nereus
