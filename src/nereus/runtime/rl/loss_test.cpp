#include "nereus/runtime/rl/loss.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "nereus/core/base/error.h"
#include "nereus/runtime/rl/testing.h"

namespace nereus {
namespace {

const at::TensorOptions kDouble = at::TensorOptions(at::kDouble);

at::Tensor flat(const Json& rows, const Json& mask) {
  std::vector<double> values;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const double value : unpadded(rows[i], mask[i])) values.push_back(value);
  }
  return at::tensor(values, kDouble);
}

// The weight of each token of the golden rows, whose lengths are 3 and 2.
at::Tensor token_weights(LossAggregation mode) {
  const std::vector<double> w = sample_weights(mode, {3, 2}, 4);
  return at::tensor({w[0], w[0], w[0], w[1], w[1]}, kDouble);
}

struct Policy {
  PolicyOutputs outputs;
  PolicyTargets targets;
  PolicyLossOptions options;
};

Policy golden_policy(const Json& g, LossAggregation mode = LossAggregation::kTokenMean) {
  Policy policy;
  policy.outputs.log_probs = flat(g["logp"], g["mask"]).set_requires_grad(true);
  policy.targets = {.old_log_probs = flat(g["old_logp"], g["mask"]),
                    .advantages = flat(g["adv"], g["mask"]),
                    .weights = token_weights(mode),
                    .metric_weights = token_weights(LossAggregation::kTokenMean)};
  policy.options.clip_ratio_low = g["clip_low"];
  policy.options.clip_ratio_high = g["clip_high"];
  policy.options.clip_ratio_c = g["clip_c"].is_null() ? 0 : g["clip_c"].get<double>();
  return policy;
}

Loss loss_of(const Policy& policy) {
  return policy_loss(policy.outputs, policy.targets, policy.options);
}

class PolicyLossGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(PolicyLossGolden, AllAggregations) {
  const Json& g = golden()[GetParam()];
  for (const char* key : {"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
                          "seq-mean-token-sum-norm(horizon=4)"}) {
    const std::string mode = std::string(key).substr(0, std::string(key).find('('));
    const Loss loss = loss_of(golden_policy(g, parse_loss_aggregation(mode)));
    EXPECT_NEAR(loss.loss.item<double>(), g["agg"][key].get<double>(), 1e-12) << key;
    EXPECT_EQ(loss.metrics.at("actor/pg_loss"), loss.loss.item<double>());
    for (const char* metric : {"pg_clipfrac", "pg_clipfrac_lower", "ppo_kl"}) {
      EXPECT_NEAR(loss.metrics.at(std::string("actor/") + metric), g[metric].get<double>(), 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Verl, PolicyLossGolden,
                         ::testing::Values("ppo_std", "ppo_dual_c3", "ppo_clip_higher"));

TEST(PolicyLoss, ClippedTokensHaveNoGradient) {
  const Policy policy = golden_policy(golden()["ppo_dual_c3"]);
  loss_of(policy).loss.backward();
  // Gradient -A r / 5 where not clipped. Token 0 is above the upper clip, token 3 is beyond the
  // dual clip, token 4 below the lower clip with A < 0.
  const at::Tensor expected = at::tensor({0.0, -std::exp(-0.5) / 5, 0.5 / 5, 0.0, 0.0}, kDouble);
  EXPECT_TRUE(at::allclose(policy.outputs.log_probs.grad(), expected))
      << policy.outputs.log_probs.grad();
}

TEST(PolicyLoss, MicroBatchesAddUp) {
  const Json& g = golden()["ppo_dual_c3"];
  const Policy whole = golden_policy(g, LossAggregation::kSeqMeanTokenMean);
  const Loss expected = loss_of(whole);
  Loss sum{at::zeros({}, kDouble), {}};
  for (const auto& [begin, end] : {std::pair(0, 3), std::pair(3, 5)}) {
    Policy part = whole;
    part.outputs.log_probs = whole.outputs.log_probs.slice(0, begin, end);
    for (at::Tensor* tensor : {&part.targets.old_log_probs, &part.targets.advantages,
                               &part.targets.weights, &part.targets.metric_weights}) {
      *tensor = tensor->slice(0, begin, end);
    }
    const Loss loss = loss_of(part);
    sum.loss = sum.loss + loss.loss;
    for (const auto& [name, value] : loss.metrics) sum.metrics[name] += value;
  }
  EXPECT_NEAR(sum.loss.item<double>(), expected.loss.item<double>(), 1e-12);
  for (const auto& [name, value] : expected.metrics) {
    EXPECT_NEAR(sum.metrics[name], value, 1e-12) << name;
  }
}

TEST(PolicyLoss, EntropyAndKlTerms) {
  Policy policy = golden_policy(golden()["ppo_std"]);
  const double plain = loss_of(policy).loss.item<double>();
  policy.outputs.entropy = at::tensor({1.0, 2.0, 3.0, 4.0, 5.0}, kDouble);
  policy.options.entropy_coeff = 0.1;
  policy.options.use_kl_loss = true;
  policy.options.kl_loss_coef = 0.5;
  policy.options.kl_loss_type = KlEstimator::kK2;
  policy.targets.ref_log_probs = policy.outputs.log_probs.detach() - 2;
  const Loss loss = loss_of(policy);
  EXPECT_NEAR(loss.loss.item<double>(), plain - 0.1 * 3 + 0.5 * 2, 1e-12);
  EXPECT_NEAR(loss.metrics.at("actor/entropy"), 3, 1e-12);
  EXPECT_NEAR(loss.metrics.at("actor/kl_loss"), 2, 1e-12);
  EXPECT_NEAR(loss.metrics.at("actor/pg_loss"), plain, 1e-12);
}

TEST(PolicyLoss, HugeLogRatiosStayFinite) {
  Policy policy = golden_policy(golden()["ppo_std"]);
  policy.targets.old_log_probs = policy.targets.old_log_probs - 1000;
  EXPECT_TRUE(std::isfinite(loss_of(policy).loss.item<double>()));
}

constexpr LossAggregation kModes[] = {
    LossAggregation::kTokenMean, LossAggregation::kTokenSum, LossAggregation::kSeqMeanTokenSum,
    LossAggregation::kSeqMeanTokenMean, LossAggregation::kSeqMeanTokenSumNorm};

// Samples without tokens that count, because the response is empty or was not scored, change no
// other one's weight.
TEST(SampleWeights, EmptySamplesAreNotThere) {
  for (const LossAggregation mode : kModes) {
    const std::vector<double> with = sample_weights(mode, {0, 3, 0, 1, 0}, 4);
    const std::vector<double> without = sample_weights(mode, {3, 1}, 4);
    EXPECT_THAT(with, ::testing::ElementsAre(0, without[0], 0, without[1], 0));
    EXPECT_THAT(sample_weights(mode, {0, 0}, 4), ::testing::ElementsAre(0, 0));
    EXPECT_TRUE(sample_weights(mode, {}, 4).empty());
    for (const double weight : sample_weights(mode, {1}, 4)) {
      EXPECT_EQ(weight, mode == LossAggregation::kSeqMeanTokenSumNorm ? 0.25 : 1);
    }
  }
}

TEST(PolicyLoss, OfNoTokenIsZero) {
  const at::Tensor none = at::empty({0}, kDouble);
  PolicyTargets targets{.old_log_probs = none,
                        .advantages = none,
                        .ref_log_probs = none,
                        .weights = none,
                        .metric_weights = none};
  PolicyOutputs outputs;
  outputs.log_probs = none;
  outputs.entropy = none;
  PolicyLossOptions options;
  options.use_kl_loss = true;
  options.entropy_coeff = 0.1;
  const Loss loss = policy_loss(outputs, targets, options);
  EXPECT_EQ(loss.loss.item<double>(), 0);
  for (const auto& [name, value] : loss.metrics) EXPECT_EQ(value, 0) << name;
}

TEST(PolicyLoss, BadOptionsAreNamed) {
  const auto message = [](auto change) -> std::string {
    PolicyLossOptions options;
    change(options);
    try {
      verify(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_THAT(message([](auto& o) { o.clip_ratio_low = 1; }),
              ::testing::HasSubstr("clip_ratio_low"));
  EXPECT_THAT(message([](auto& o) { o.clip_ratio_c = 0.5; }), ::testing::HasSubstr("clip_ratio_c"));
  EXPECT_THAT(message([](auto& o) { o.entropy_coeff = std::numeric_limits<double>::quiet_NaN(); }),
              ::testing::HasSubstr("entropy_coeff"));
  EXPECT_THAT(message([](auto& o) {
                o.use_kl_loss = true;
                o.kl_loss_type = KlEstimator::kK1;
              }),
              ::testing::HasSubstr("low_var_kl"));
  EXPECT_EQ(message([](auto& o) { o.kl_loss_type = KlEstimator::kK1; }), "");
}

TEST(ValueLoss, Golden) {
  const Json& g = golden()["value_loss"];
  const auto tensor = [&](const char* key) {
    return at::tensor(g[key].get<std::vector<double>>(), kDouble);
  };
  const at::Tensor weights = at::full({3}, 1.0 / 3, kDouble);
  const Loss loss = value_loss(tensor("vpred"), {tensor("old"), tensor("ret"), weights, weights},
                               {.cliprange_value = g["cliprange_value"]});
  EXPECT_NEAR(loss.loss.item<double>(), g["loss_half"].get<double>(), 1e-12);
  EXPECT_NEAR(loss.metrics.at("critic/vf_loss"), g["loss_half"].get<double>(), 1e-12);
  EXPECT_NEAR(loss.metrics.at("critic/vf_clipfrac"), g["vf_clipfrac"].get<double>(), 1e-12);
  EXPECT_NEAR(loss.metrics.at("critic/vpred_mean"), 1, 1e-12);
}

TEST(SampleWeights, EmptyResponsesDoNotCount) {
  using enum LossAggregation;
  for (const auto mode :
       {kTokenMean, kTokenSum, kSeqMeanTokenSum, kSeqMeanTokenMean, kSeqMeanTokenSumNorm}) {
    const auto with = sample_weights(mode, {3, 0, 2}, 4), without = sample_weights(mode, {3, 2}, 4);
    EXPECT_THAT(with, ::testing::ElementsAre(without[0], 0, without[1]));
  }
  EXPECT_THAT(sample_weights(kTokenMean, {0, 0}, 4), ::testing::ElementsAre(0, 0));
}

TEST(LossAggregation, UnknownNameListsTheKnown) {
  EXPECT_THROW(parse_loss_aggregation("mean"), Error);
}

}  // namespace
}  // namespace nereus
