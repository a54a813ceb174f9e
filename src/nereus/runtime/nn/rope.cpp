#include "nereus/runtime/nn/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nereus/runtime/cuda/nn_ops.h"

namespace nereus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

double scaled(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double turns = scaling.original_max_position / wavelength;
  if (turns > scaling.high_freq_factor) return frequency;
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// Both rotations turn the pair (x[i], x[i + half]) by its angle, or back.
enum class Turn { kForward, kBack };

template <class T>
at::Tensor rotate_rows(const at::Tensor& x, int64_t rotated, const RopeTables& tables,
                       const at::Tensor& positions, Turn turn) {
  at::Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
  const int64_t heads = x.size(1), half = x.size(2) / 2;
  const T* in = x.const_data_ptr<T>();
  T* out = y.mutable_data_ptr<T>();
  const T sign = turn == Turn::kForward ? 1 : -1;
  for (int64_t token = 0; token < x.size(0); ++token) {
    const int64_t position = positions.const_data_ptr<int64_t>()[token];
    const T* c = tables.cos.const_data_ptr<T>() + position * half;
    const T* s = tables.sin.const_data_ptr<T>() + position * half;
    for (int64_t head = 0; head < rotated; ++head, in += 2 * half, out += 2 * half) {
      for (int64_t i = 0; i < half; ++i) {
        out[i] = in[i] * c[i] - in[i + half] * s[i] * sign;
        out[i + half] = in[i + half] * c[i] + in[i] * s[i] * sign;
      }
    }
    const int64_t rest = (heads - rotated) * 2 * half;
    std::copy_n(in, rest, out);
    in += rest;
    out += rest;
  }
  return y;
}

at::Tensor rotate(const at::Tensor& x, int64_t rotated, const RopeTables& tables,
                  const at::Tensor& positions, Turn turn) {
  if (x.is_cpu() && x.scalar_type() == at::kFloat) {
    return rotate_rows<float>(x.contiguous(), rotated, tables, positions, turn);
  }
  if (x.is_cpu() && x.scalar_type() == at::kDouble) {
    return rotate_rows<double>(x.contiguous(), rotated, tables, positions, turn);
  }
  if (cuda::takes(x, x.size(2) / 2)) {
    return cuda::rope(x, rotated, tables.cos, tables.sin, positions, turn == Turn::kBack);
  }
  const at::Tensor cos = tables.cos.index_select(0, positions).unsqueeze(1);
  const at::Tensor sine = tables.sin.index_select(0, positions).unsqueeze(1);
  const at::Tensor sin = turn == Turn::kForward ? sine : sine.neg();
  const std::vector<at::Tensor> halves = x.narrow(1, 0, rotated).chunk(2, 2);
  const at::Tensor turned =
      at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, 2);
  return at::cat({turned, x.narrow(1, rotated, x.size(1) - rotated)}, 1);
}

struct Rope : Function<Rope> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t rotated,
                            const at::Tensor& cos, const at::Tensor& sin,
                            const at::Tensor& positions) {
    ctx->save_for_backward({cos, sin, positions});
    ctx->saved_data["rotated"] = rotated;
    return rotate(x, rotated, {cos, sin}, positions, Turn::kForward);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad = rotate(grads[0], ctx->saved_data["rotated"].toInt(),
                                   {saved[0], saved[1]}, saved[2], Turn::kBack);
    return {grad, {}, {}, {}, {}};
  }
};

}  // namespace

std::vector<double> rope_frequencies(const ModelSpec& spec) {
  std::vector<double> frequencies;
  for (int i = 0; i < spec.head_dim; i += 2) {
    const double frequency = std::pow(spec.rope_theta, -static_cast<double>(i) / spec.head_dim);
    frequencies.push_back(spec.rope_scaling ? scaled(frequency, *spec.rope_scaling) : frequency);
  }
  return frequencies;
}

RopeTables make_rope_tables(const ModelSpec& spec, int64_t positions,
                            const at::TensorOptions& options) {
  // Tables outlive the pass that first needs them, so they must not be inference tensors.
  const c10::InferenceMode normal_tensors(false);
  const bool fp64 = options.dtype() == at::kDouble;
  const at::ScalarType compute = fp64 ? at::kDouble : at::kFloat;
  const at::Tensor frequencies = at::tensor(rope_frequencies(spec), at::kDouble).to(compute);
  const at::Tensor angles = at::outer(at::arange(positions, compute), frequencies);
  return {angles.cos().to(options), angles.sin().to(options)};
}

at::Tensor apply_rope(const at::Tensor& x, int64_t rotated, const RopeTables& tables,
                      const at::Tensor& positions) {
  if (!at::GradMode::is_enabled()) return rotate(x, rotated, tables, positions, Turn::kForward);
  return Rope::apply(x, rotated, tables.cos, tables.sin, positions);
}

}  // namespace nereus
