// Root-mean-square layer normalisation.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace nereus {

// x [..., n] · weight [n] / rms(x), differentiable. Half types are normalised in fp32, fp64 in
// fp64.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
// x + y and rms_norm() of it. No autograd.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& y,
                                               const at::Tensor& weight, double eps);

}  // namespace nereus
