#include "nereus/runtime/engine/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

// The reference is torch's own fused AdamW.
TEST(AdamW, MatchesTorch) {
  OptimizerOptions options{.lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1};
  at::Tensor parameter = at::randn({257}, at::kDouble);
  at::Tensor exp_avg = at::zeros_like(parameter);
  at::Tensor exp_avg_sq = at::zeros_like(parameter);
  std::vector<at::Tensor> theirs = {parameter.clone()};
  std::vector<at::Tensor> their_exp_avg = {exp_avg.clone()};
  std::vector<at::Tensor> their_exp_avg_sq = {exp_avg_sq.clone()};
  for (int64_t step = 1; step <= 5; ++step) {
    at::Tensor gradient = at::randn({257}, at::kDouble);
    std::vector<at::Tensor> gradients = {gradient * 0.5};
    adamw_step(parameter, gradient, exp_avg, exp_avg_sq,
               {.number = step, .lr = options.lr, .gradient_factor = 0.5}, options);
    std::vector<at::Tensor> steps = {at::scalar_tensor(static_cast<double>(step), at::kFloat)};
    at::_fused_adamw_(theirs, gradients, their_exp_avg, their_exp_avg_sq, {}, steps, options.lr,
                      options.beta1, options.beta2, options.weight_decay, options.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
  EXPECT_LT((parameter - theirs[0]).abs().max().item<double>(), 1e-12);
  EXPECT_LT((exp_avg_sq - their_exp_avg_sq[0]).abs().max().item<double>(), 1e-12);
}

// Rule of the design: any cut of the arena gives the same bits.
TEST(AdamW, IsElementwiseToTheBit) {
  const OptimizerOptions options{.lr = 3e-4};
  const at::Tensor start = at::randn({101});
  at::Tensor gradient = at::randn({101});
  at::Tensor whole = start.clone();
  at::Tensor whole_m = at::zeros({101});
  at::Tensor whole_v = at::zeros({101});
  const AdamWStep step{.number = 1, .lr = options.lr};
  adamw_step(whole, gradient, whole_m, whole_v, step, options);
  at::Tensor cut = start.clone();
  at::Tensor cut_m = at::zeros({101});
  at::Tensor cut_v = at::zeros({101});
  for (const auto& [begin, length] : {std::pair{0, 7}, {7, 30}, {37, 64}}) {
    at::Tensor p = cut.narrow(0, begin, length);
    at::Tensor m = cut_m.narrow(0, begin, length);
    at::Tensor v = cut_v.narrow(0, begin, length);
    at::Tensor g = gradient.narrow(0, begin, length);
    adamw_step(p, g, m, v, step, options);
  }
  EXPECT_TRUE(at::equal(whole, cut));
  EXPECT_TRUE(at::equal(whole_v, cut_v));
}

// The same step by one fused operator.
TEST(AdamW, OnAGpuAsOnTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU";
  const OptimizerOptions options{.lr = 1e-2, .weight_decay = 0.1};
  std::vector<at::Tensor> here = {at::randn({1001}), at::randn({1001}), at::randn({1001}),
                                  at::rand({1001})};
  std::vector<at::Tensor> there;
  for (const at::Tensor& tensor : here) there.push_back(tensor.to(at::kCUDA));
  for (int64_t number = 1; number <= 3; ++number) {
    const AdamWStep step{.number = number, .lr = 1e-2, .gradient_factor = 0.3};
    there[1].copy_(here[1]);  // a step may overwrite the gradient
    adamw_step(there[0], there[1], there[2], there[3], step, options);
    at::Tensor gradient = here[1].clone();
    adamw_step(here[0], gradient, here[2], here[3], step, options);
  }
  EXPECT_LT((here[0] - there[0].cpu()).abs().max().item<double>(), 1e-5);
}

TEST(LearningRate, WarmsUpAndDecays) {
  OptimizerOptions options{.lr = 1, .lr_warmup_steps = 10};
  options.total_steps = 110;
  EXPECT_EQ(learning_rate(options, 0), 0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 10), 1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 60), 1) << "constant";
  options.lr_scheduler = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(options, 60), 0.5);
  options.lr_scheduler = "cosine";
  options.min_lr_ratio = 0.2;
  EXPECT_NEAR(learning_rate(options, 60), 0.6, 1e-12);
  EXPECT_NEAR(learning_rate(options, 110), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(options, 500), 0.2, 1e-12);
}

// By verl 0.9.1's get_cosine_schedule_with_warmup and get_constant_schedule_with_warmup: the rates
// of steps 0, 1, … at lr 1.
TEST(LearningRate, IsThatOfVerlsSchedulers) {
  const auto expect_rates = [](const OptimizerOptions& options, std::vector<double> rates) {
    for (size_t step = 0; step < rates.size(); ++step) {
      EXPECT_NEAR(learning_rate(options, static_cast<int64_t>(step)), rates[step], 1e-12)
          << options.lr_scheduler << ", warm-up " << options.lr_warmup_steps << ", step " << step;
    }
  };
  expect_rates(
      {.lr = 1,
       .lr_warmup_steps = 0,
       .lr_scheduler = "cosine",
       .min_lr_ratio = 0.0,
       .total_steps = 5},
      {1.0, 0.9045084971874737, 0.6545084971874737, 0.34549150281252633, 0.09549150281252633});
  expect_rates({.lr = 1,
                .lr_warmup_steps = 2,
                .lr_scheduler = "cosine",
                .min_lr_ratio = 0.1,
                .total_steps = 6},
               {0.0, 0.5, 1.0, 0.8681980515339465, 0.55, 0.23180194846605368});
  expect_rates({.lr = 1,
                .lr_warmup_steps = 3,
                .lr_scheduler = "cosine",
                .min_lr_ratio = 0.25,
                .total_steps = 3},
               {0.0, 0.3333333333333333, 0.6666666666666666});
  expect_rates({.lr = 1,
                .lr_warmup_steps = 3,
                .lr_scheduler = "constant",
                .min_lr_ratio = 0.0,
                .total_steps = 0},
               {0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 1.0});
  expect_rates({.lr = 1,
                .lr_warmup_steps = 0,
                .lr_scheduler = "constant",
                .min_lr_ratio = 0.0,
                .total_steps = 0},
               {1.0, 1.0, 1.0, 1.0, 1.0});
}

TEST(ClipFactor, LimitsTheNorm) {
  const OptimizerOptions options{.grad_clip = 2};
  EXPECT_EQ(clip_factor(options, 1.5), 1);
  EXPECT_NEAR(clip_factor(options, 4), 0.5, 1e-6);
  EXPECT_EQ(clip_factor({.grad_clip = 0}, 1e9), 1) << "0 is off";
}

TEST(OptimizerOptions, NamesTheBadValue) {
  const auto message_of = [](const OptimizerOptions& options) {
    try {
      verify(options);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(message_of({}), "accepted");
  EXPECT_NE(message_of({.beta1 = 1}).find("betas[0] is 1"), std::string::npos);
  EXPECT_NE(message_of({.lr = std::nan("")}).find("lr is nan"), std::string::npos);
  EXPECT_NE(message_of({.lr_scheduler = "step"}).find("constant, cosine, linear"),
            std::string::npos);
}

}  // namespace
}  // namespace nereus
