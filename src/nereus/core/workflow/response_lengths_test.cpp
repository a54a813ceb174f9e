#include "nereus/core/workflow/response_lengths.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

namespace nereus {
namespace {

Workload workload_of(double mean, int64_t limit) {
  return {.samples = 64, .prompt_tokens = 10, .response_mean = mean, .response_limit = limit};
}

double mean_of(const ResponseLengths& lengths) {
  constexpr int kPoints = 20000;
  double sum = 0;
  for (int i = 0; i < kPoints; ++i) sum += lengths.quantile((i + 0.5) / kPoints);
  return sum / kPoints;
}

TEST(ResponseLengths, HaveTheMeanAndStayWithinTheLimit) {
  for (double share : {0.02, 0.1, 0.3, 0.49999, 0.5, 0.6, 0.9, 0.985}) {
    const ResponseLengths lengths(workload_of(1000 * share, 1000));
    EXPECT_NEAR(mean_of(lengths) / (1000 * share), 1, 2e-3) << share;
    EXPECT_NEAR(lengths.quantile(0), 0, 1e-6);
    EXPECT_NEAR(lengths.quantile(1), 1000, 1e-6);
  }
  EXPECT_EQ(ResponseLengths(workload_of(1000, 1000)).quantile(0), 1000);
}

TEST(ResponseLengths, LookExponentialFarBelowTheLimit) {
  const ResponseLengths lengths(workload_of(200, 4000));
  EXPECT_NEAR(lengths.quantile(0.5), 200 * std::log(2), 1);
  EXPECT_NEAR(lengths.quantile(0.99), 200 * std::log(100), 5);
}

TEST(ResponseLengths, FollowGivenQuantilesScaledToTheMean) {
  Workload workload = workload_of(60, 1000);
  workload.response_quantiles = {10, 30, 50};
  const ResponseLengths lengths(workload);
  EXPECT_DOUBLE_EQ(lengths.quantile(0.25), 40);
  EXPECT_DOUBLE_EQ(lengths.quantile(1), 100);
  EXPECT_NEAR(mean_of(lengths), 60, 1e-6);
}

TEST(ResponseLengths, NoResponseGetsShorterAsTheMeanGrows) {
  EXPECT_TRUE(rc::check("monotone in the mean", [] {
    const int64_t limit = *rc::gen::inRange(2, 5000);
    const double mean = *rc::gen::inRange(1, 1000) * 1e-3 * double(limit);
    const double probability = *rc::gen::inRange(0, 1001) * 1e-3;
    const double longer = std::min(double(limit), mean * 1.1);
    RC_ASSERT(ResponseLengths(workload_of(longer, limit)).quantile(probability) >=
              ResponseLengths(workload_of(mean, limit)).quantile(probability) * (1 - 1e-9));
  }));
}

TEST(DecodePhases, CoverAllTokensUpToTheLongestResponse) {
  for (double mean : {30.0, 250.0, 900.0}) {
    double steps = 0, tokens = 0, before = 65;
    for (const DecodePhase& phase : decode_phases(workload_of(mean, 1000), 64)) {
      EXPECT_LT(phase.sequences, before);
      before = phase.sequences;
      steps += phase.steps;
      tokens += phase.steps * phase.sequences;
    }
    EXPECT_NEAR(steps, ResponseLengths(workload_of(mean, 1000)).quantile(1 - 0.5 / 64), 1e-6);
    EXPECT_NEAR(tokens / (64 * mean), 1, 0.03);
  }
  const std::vector<DecodePhase> equal = decode_phases(workload_of(1000, 1000), 64);
  ASSERT_EQ(equal.size(), 1u);
  EXPECT_EQ(equal[0].steps, 1000);
  EXPECT_EQ(equal[0].sequences, 64);
}

TEST(DecodePhases, ACacheThatFreesNeedsLessThanItsLongestRows) {
  const double all = 64 * 1010;
  EXPECT_DOUBLE_EQ(most_cached_tokens(workload_of(1000, 1000), 64), all);
  const double some = most_cached_tokens(workload_of(250, 1000), 64);
  EXPECT_LT(some, 0.4 * all);
  EXPECT_GT(some, 64 * 100);
}

}  // namespace
}  // namespace nereus
