// Log-probabilities of generation and of training.
#include <gtest/gtest.h>

#include <cmath>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

double largest_difference(const Experience& experience) {
  double largest = 0;
  for (const Sample& sample : experience) {
    EXPECT_FALSE(sample.response.empty());
    for (size_t t = 0; t < sample.response.size(); ++t) {
      largest = std::max(largest, std::abs(sample.rollout_log_probs[t] - sample.old_log_probs[t]));
    }
  }
  return largest;
}

// Else importance ratios and training/rollout_probs_diff_* compare two distributions.
TEST(RolloutLogProbs, AreOfTheDistributionThatTrainingComputes) {
  const SamplingParams kParams[] = {{.temperature = 0.5, .greedy = true},
                                    {.temperature = 2, .top_k = 3, .top_p = 0.9, .greedy = true},
                                    {.temperature = 0.5},
                                    {.top_k = 5},
                                    {.top_p = 0.5},
                                    {.temperature = 1.7, .top_k = 4, .top_p = 0.6}};
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat64, 1e-10), {DType::kFloat32, 1e-4}}) {
    for (const SamplingParams& params : kParams) {
      LiveOptions options = testing::tiny_job(/*devices=*/2, /*steps=*/1);
      options.dtype = dtype;
      options.sampling = params;
      Experience last;
      options.on_experience = [&](const Experience& experience) { last = experience; };
      LiveJob job(options, testing::uniform_plan(options, {1, 1}, 2));
      const StepReport report = job.run_step();
      EXPECT_LT(largest_difference(last), tolerance)
          << "temperature " << params.temperature << ", top-k " << params.top_k << ", top-p "
          << params.top_p << ", greedy " << params.greedy;
      EXPECT_LT(report.metrics.at("training/rollout_probs_diff_max"), tolerance);
    }
  }
}

}  // namespace
}  // namespace nereus
