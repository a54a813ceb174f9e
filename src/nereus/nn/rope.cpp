#include "nereus/nn/rope.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <numbers>

namespace nereus {

namespace {

double scaled(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double turns = scaling.original_max_position / wavelength;
  if (turns > scaling.high_freq_factor) return frequency;
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

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
  const at::Tensor cos = angles.cos(), sin = angles.sin();
  return {at::cat({cos, cos}, 1).to(options), at::cat({sin.neg(), sin}, 1).to(options)};
}

at::Tensor apply_rope(const at::Tensor& x, const RopeTables& tables) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor swapped = at::cat({x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return at::addcmul(x * tables.cos, swapped, tables.sin);
}

}  // namespace nereus
