#include "nereus/app/observe/summary.h"

#include <gtest/gtest.h>

#include <utility>

namespace nereus {
namespace {

// First and last reward of a run whose rewards are 0, 1, 2, …
std::pair<double, double> rewards(int steps) {
  std::vector<Json> metrics;
  for (int step = 0; step < steps; ++step) {
    metrics.push_back({{"step", step}, {"critic/score/mean", step}});
  }
  const Json summary = summarize(metrics, {});
  return {summary.at("reward_first"), summary.at("reward_last")};
}

TEST(Summary, NoStepCountsAmongTheFirstAndTheLast) {
  EXPECT_EQ(rewards(25), std::pair(4.5, 19.5));
  EXPECT_EQ(rewards(20), std::pair(4.5, 14.5));
  EXPECT_EQ(rewards(10), std::pair(2.0, 7.0));
  EXPECT_EQ(rewards(3), std::pair(0.0, 2.0));
  EXPECT_EQ(rewards(2), std::pair(0.0, 1.0));
  EXPECT_EQ(rewards(1), std::pair(0.0, 0.0));
}

}  // namespace
}  // namespace nereus
