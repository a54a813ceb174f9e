// Linear layers that read the same input, as one product where their weights lie together.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace nereus {

struct LinearStack {
  std::vector<at::Tensor> weights;  // [rows of each, in]
  std::vector<at::Tensor> biases;   // one for each weight, or none
  // [all rows, in]: the weights' bytes, if they follow each other in memory and there are no
  // biases.
  at::Tensor whole;
};

LinearStack stack(std::vector<at::Tensor> weights, std::vector<at::Tensor> biases = {});

// x [n, in] → [n, all rows]: the layers' outputs side by side. Differentiable in x and the weights.
at::Tensor linear(const at::Tensor& x, const LinearStack& stack);

}  // namespace nereus
