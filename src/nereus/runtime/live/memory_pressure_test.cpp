// Passes that run out of memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::tiny_job;
using testing::uniform_plan;

Plan with_micro_batch(Plan plan, int micro_batch) {
  for (StagePlan& stage : plan.stages) stage.micro_batch = micro_batch;
  return plan;
}

Bytes highest_peak(const std::vector<StepReport>& reports) {
  Bytes highest;
  for (const StepReport& report : reports) {
    for (const auto& [device, bytes] : report.peak_bytes) highest = std::max(highest, bytes);
  }
  return highest;
}

std::vector<StepReport> run(LiveJob& job) {
  std::vector<StepReport> reports;
  while (!job.done()) reports.push_back(job.run_step());
  return reports;
}

void expect_same_results(const std::vector<StepReport>& actual,
                         const std::vector<StepReport>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_EQ(actual[step].response_tokens, expected[step].response_tokens) << "step " << step;
    for (const char* metric : {"actor/pg_loss", "critic/vf_loss", "actor/grad_norm"}) {
      EXPECT_NEAR(actual[step].metrics.at(metric), expected[step].metrics.at(metric), 1e-10)
          << metric << " in step " << step;
    }
  }
}

TEST(MemoryPressure, SmallerMicroBatchesGoOnWithTheSameResult) {
  LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/2);
  if (!options.backend.is_cpu()) GTEST_SKIP() << "a GPU's allocator takes more than tiny models do";
  options.response_length = {{{0, 24}}};
  const Plan plan = with_micro_batch(uniform_plan(options, {1, 1}, 2), 8);
  LiveJob plenty(options, plan);
  const std::vector<StepReport> expected = run(plenty);
  LiveJob frugal(options, with_micro_batch(plan, 1));
  const Bytes least = highest_peak(run(frugal)), most = highest_peak(expected);

  options.cluster.device.memory = least + (most - least) * 0.2;
  LiveJob tight(options, plan);
  const std::vector<StepReport> actual = run(tight);
  ASSERT_TRUE(actual.front().adjusted_plan);
  const StagePlan& training = at(*actual.front().adjusted_plan, kActorTraining);
  EXPECT_LT(training.micro_batch, 8);
  EXPECT_FALSE(actual.back().adjusted_plan) << "what fits once fits again";
  EXPECT_EQ(tight.plan(), *actual.front().adjusted_plan);
  expect_same_results(actual, expected);
}

TEST(MemoryPressure, ResponsesAreMadeInWavesWithTheSameResult) {
  for (const Layout layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}}) {
    LiveOptions options = tiny_job(/*devices=*/2, /*steps=*/2);
    if (!options.backend.is_cpu()) {
      GTEST_SKIP() << "a GPU's allocator takes more than tiny models do";
    }
    options.data.samples_per_prompt = 16;
    const Plan plan = with_micro_batch(uniform_plan(options, layout, 2 / layout.devices()), 2);
    LiveJob plenty(options, plan);
    const std::vector<StepReport> expected = run(plenty);

    options.cluster.device.memory = highest_peak(expected) * 0.8;
    // Who finds that memory is short, a validation before the first step or that step, is the same.
    options.validation.file = options.data.train_file;
    LiveJob tight(options, plan);
    if (layout.pp == 2) tight.validate_at_start();
    const std::vector<StepReport> actual = run(tight);
    ASSERT_TRUE(actual.front().adjusted_plan);
    Plan expected_plan = plan;
    for (StagePlan& stage : expected_plan.stages) {
      if (stage.model_stage.stage == Stage::kGeneration) stage.waves = 2;
    }
    EXPECT_EQ(*actual.front().adjusted_plan, expected_plan) << "nothing else needs so much";
    EXPECT_LE(highest_peak(actual), options.cluster.device.memory);
    expect_same_results(actual, expected);
  }
}

}  // namespace
}  // namespace nereus
