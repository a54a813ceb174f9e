#include "nereus/nn/rms_norm.h"

#include <ATen/ops/rms_norm.h>

namespace nereus {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return at::rms_norm(x, weight.sizes(), weight, eps);
}

}  // namespace nereus
