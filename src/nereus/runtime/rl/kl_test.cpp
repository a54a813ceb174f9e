#include "nereus/runtime/rl/kl.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "nereus/core/base/error.h"
#include "nereus/runtime/rl/testing.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;

TEST(KlEstimate, GoldenOnNumbersAndTensors) {
  const std::pair<const char*, const char*> names[] = {
      {"kl", "k1"}, {"mse", "k2"}, {"low_var_kl", "k3_verl_in20_out10"}, {"abs", "abs"}};
  ASSERT_GE(golden().at("kl_by_logp_minus_ref").size(), 5u);
  for (const auto& [difference, expected] : golden()["kl_by_logp_minus_ref"].items()) {
    const double log_prob = std::stod(difference) - 1.5;
    for (const auto& [name, key] : names) {
      const KlEstimator estimator = parse_kl_estimator(name);
      const double value = expected[key];
      EXPECT_NEAR(kl_estimate(log_prob, -1.5, estimator), value, 1e-12) << name << difference;
      const at::Tensor tensor = kl_estimate(at::scalar_tensor(log_prob, at::kDouble),
                                            at::scalar_tensor(-1.5, at::kDouble), estimator);
      EXPECT_NEAR(tensor.item<double>(), value, 1e-12) << name << difference;
    }
  }
}

TEST(KlEstimate, K3StaysFiniteForImpossibleTokens) {
  EXPECT_EQ(kl_estimate(-1000, 0, KlEstimator::kK3), 10);
  EXPECT_EQ(kl_estimate(0, -1000, KlEstimator::kK3), 10);
}

TEST(KlEstimate, K2PullsTowardsTheReference) {
  at::Tensor log_prob = at::scalar_tensor(-1.0).set_requires_grad(true);
  kl_estimate(log_prob, at::scalar_tensor(-3.0), KlEstimator::kK2).backward();
  EXPECT_FLOAT_EQ(log_prob.grad().item<float>(), 2);
}

TEST(KlEstimate, ShortAndUnknownNames) {
  EXPECT_EQ(parse_kl_estimator("k1"), KlEstimator::kK1);
  EXPECT_EQ(parse_kl_estimator("k2"), KlEstimator::kK2);
  EXPECT_EQ(parse_kl_estimator("k3"), KlEstimator::kK3);
  EXPECT_THROW(parse_kl_estimator("k4"), Error);
}

// KL per token: {0.5, -0.1} and {1}.
Experience with_log_probs() {
  Experience experience(2);
  experience[0].token_scores = {0, 2};
  experience[0].old_log_probs = {-1, -2};
  experience[0].ref_log_probs = {-1.5, -1.9};
  experience[1].token_scores = {1};
  experience[1].old_log_probs = {-1};
  experience[1].ref_log_probs = {-2};
  return experience;
}

TEST(KlPenalty, IsTakenFromTheScores) {
  Experience experience = with_log_probs();
  const double kl = apply_kl_penalty(experience, 0.1, KlEstimator::kK1);
  EXPECT_NEAR(experience[0].rewards[0], -0.05, 1e-12);
  EXPECT_NEAR(experience[0].rewards[1], 2.01, 1e-12);
  EXPECT_NEAR(experience[1].rewards[0], 0.9, 1e-12);
  EXPECT_NEAR(kl, (0.2 + 1) / 2, 1e-12);                   // mean over sequences
  EXPECT_NEAR(mean_token_kl(experience), 1.4 / 3, 1e-12);  // mean over tokens
}

TEST(KlPenalty, WithoutReferenceRewardsAreTheScores) {
  Experience experience(1);
  experience[0].token_scores = {1, 2};
  EXPECT_EQ(apply_kl_penalty(experience, 0.1, KlEstimator::kK1), 0);
  EXPECT_THAT(experience[0].rewards, ElementsAre(1, 2));
  EXPECT_EQ(mean_token_kl(experience), 0);
}

TEST(KlController, Golden) {
  ASSERT_GE(golden().at("adaptive_kl").size(), 2u);
  for (const Json& g : golden()["adaptive_kl"]) {
    KlController controller(g["coef0"], g["target"], g["horizon"]);
    controller.update(g["current"], g["n"]);
    EXPECT_NEAR(controller.coefficient(), g["coef1"].get<double>(), 1e-12);
  }
}

TEST(KlController, FixedWithoutHorizon) {
  KlController controller(0.5, 0.1, 0);
  controller.update(100, 1024);
  EXPECT_EQ(controller.coefficient(), 0.5);
}

}  // namespace
}  // namespace nereus
