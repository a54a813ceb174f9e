#include "nereus/runtime/nn/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>
#include <utility>

#include "nereus/runtime/cuda/nn_ops.h"

namespace nereus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Σ f(i) in eight interleaved partial sums, which the compiler turns into vector code.
template <class T, class F>
T sum_of(int64_t n, const F& f) {
  std::array<T, 8> partial{};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) partial[lane] += f(i + lane);
  }
  T sum = 0;
  for (; i < n; ++i) sum += f(i);
  for (const T part : partial) sum += part;
  return sum;
}

struct Normed {
  at::Tensor y;
  at::Tensor scale;  // [rows], 1 / rms
};

template <class T>
Normed forward_rows(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  Normed out{at::empty_like(x), at::empty({rows}, x.options())};
  const T* xs = x.const_data_ptr<T>();
  const T* w = weight.const_data_ptr<T>();
  T* ys = out.y.mutable_data_ptr<T>();
  T* scales = out.scale.mutable_data_ptr<T>();
  for (int64_t row = 0; row < rows; ++row, xs += n, ys += n) {
    const T squares = sum_of<T>(n, [&](int64_t i) { return xs[i] * xs[i]; });
    const T scale = 1 / std::sqrt(squares / static_cast<T>(n) + static_cast<T>(eps));
    scales[row] = scale;
    for (int64_t i = 0; i < n; ++i) ys[i] = xs[i] * scale * w[i];
  }
  return out;
}

// → gradients of x and of weight.
template <class T>
std::pair<at::Tensor, at::Tensor> backward_rows(const at::Tensor& grad, const at::Tensor& x,
                                                const at::Tensor& weight, const at::Tensor& scale) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  at::Tensor grad_x = at::empty_like(x), grad_weight = at::zeros_like(weight);
  const T* g = grad.const_data_ptr<T>();
  const T* xs = x.const_data_ptr<T>();
  const T* w = weight.const_data_ptr<T>();
  T* dx = grad_x.mutable_data_ptr<T>();
  T* dw = grad_weight.mutable_data_ptr<T>();
  for (int64_t row = 0; row < rows; ++row, g += n, xs += n, dx += n) {
    const T s = scale.const_data_ptr<T>()[row];
    const T dot = sum_of<T>(n, [&](int64_t i) { return g[i] * w[i] * xs[i]; });
    const T along_x = dot * s * s * s / static_cast<T>(n);
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = g[i] * w[i] * s - xs[i] * along_x;
      dw[i] += g[i] * xs[i] * s;
    }
  }
  return {grad_x, grad_weight};
}

Normed forward_cpu(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x.scalar_type() == at::kFloat ? forward_rows<float>(x, weight, eps)
                                       : forward_rows<double>(x, weight, eps);
}

struct CpuRmsNorm : Function<CpuRmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const Normed out = forward_cpu(x, weight, eps);
    ctx->save_for_backward({x, weight, out.scale});
    return out.y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous();
    const auto [grad_x, grad_weight] =
        grad.scalar_type() == at::kFloat
            ? backward_rows<float>(grad, saved[0], saved[1], saved[2])
            : backward_rows<double>(grad, saved[0], saved[1], saved[2]);
    return {grad_x, grad_weight, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  // On CPU, ATen's is a chain of small kernels, which dominates tiny models.
  const bool full_precision = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  if (!x.is_cpu() || !full_precision) return at::rms_norm(x, weight.sizes(), weight, eps);
  if (!at::GradMode::is_enabled()) return forward_cpu(x.contiguous(), weight, eps).y;
  return CpuRmsNorm::apply(x.contiguous(), weight, eps);
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& y,
                                               const at::Tensor& weight, double eps) {
  if (cuda::takes(x, x.size(1))) {
    const auto [sum, normed] = cuda::add_rms_norm(x, y, weight, eps);
    return {sum, normed};
  }
  const at::Tensor sum = x + y;
  return {sum, rms_norm(sum, weight, eps)};
}

}  // namespace nereus
