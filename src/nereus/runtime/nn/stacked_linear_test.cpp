#include "nereus/runtime/nn/stacked_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace nereus {
namespace {

struct Passed {
  at::Tensor output;
  std::vector<at::Tensor> gradients;  // of x and the weights
};

Passed pass(const LinearStack& layers, const at::Tensor& input, const at::Tensor& grad) {
  const at::Tensor x = input.detach().requires_grad_(true);
  std::vector<at::Tensor> leaves = {x};
  for (const at::Tensor& weight : layers.weights) leaves.push_back(weight);
  const at::Tensor output = linear(x, layers);
  return {output.detach(), torch::autograd::grad({output}, leaves, {grad})};
}

TEST(StackedLinear, OneProductIsAsGoodAsMany) {
  const at::Tensor arena = at::randn({(3 + 2 + 2) * 4}, at::kDouble);
  std::vector<at::Tensor> together, apart;
  int64_t begin = 0;
  for (const int64_t rows : {3, 2, 2}) {
    const at::Tensor weight = arena.narrow(0, begin, rows * 4).view({rows, 4});
    together.push_back(weight.detach().requires_grad_(true));
    apart.push_back(weight.clone().requires_grad_(true));
    begin += rows * 4;
  }
  const LinearStack one = stack(together), many = stack(apart);
  ASSERT_TRUE(one.whole.defined());
  ASSERT_FALSE(many.whole.defined());
  const at::Tensor x = at::randn({5, 4}, at::kDouble), grad = at::randn({5, 7}, at::kDouble);
  const Passed a = pass(one, x, grad), b = pass(many, x, grad);
  EXPECT_TRUE(at::allclose(a.output, b.output));
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(at::allclose(a.gradients[i], b.gradients[i])) << i;
  }
}

}  // namespace
}  // namespace nereus
