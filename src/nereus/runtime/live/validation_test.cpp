#include "nereus/runtime/live/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/runtime/engine/stopwatch.h"
#include "nereus/runtime/live/rewarding.h"
#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;
using testing::switch_to;
using testing::tiny_job;
using testing::uniform_plan;

const std::string kScore = "val-core/unknown/reward/mean@2";

// Ten prompts of the digit task, more than the eight of a step, with two sampled responses each.
LiveOptions validated_job(int devices, int steps) {
  LiveOptions options = tiny_job(devices, steps);
  options.validation.file = testing::tiny_model() / "validation.jsonl";
  std::string rows;
  for (int row = 0; row < 10; ++row) {
    rows += R"({"prompt": ")" + std::to_string(row) + R"(,8:9,2"})" + "\n";
  }
  write_text(options.validation.file, rows);
  options.validation.every = 2;
  options.validation.samples_per_prompt = 2;
  options.validation.sampling.greedy = false;
  return options;
}

// Of a step, without what a clock or a memory account said.
Metrics trained(const StepReport& report) {
  Metrics metrics = report.metrics;
  std::erase_if(metrics, [](const auto& entry) {
    return entry.first.starts_with("timing") || entry.first.starts_with("perf/") ||
           entry.first.starts_with("val-");
  });
  return metrics;
}

TEST(ValidationTest, ChangesNothingOfTheTraining) {
  const LiveOptions options = validated_job(/*devices=*/2, /*steps=*/3);
  LiveOptions plain_options = options;
  plain_options.validation = {};
  const Plan plan = uniform_plan(options, {1, 1}, 2);
  LiveJob job(options, plan);
  LiveJob plain(plain_options, plan);
  EXPECT_TRUE(plain.validate_at_start().empty());
  EXPECT_TRUE(job.validate_at_start().contains(kScore));
  while (!plain.done()) {
    const Stopwatch timer;
    const StepReport report = job.run_step();
    const Seconds took = timer.elapsed();
    const StepReport expected = plain.run_step();
    EXPECT_EQ(report.metrics.contains(kScore), report.step > 0) << "steps 2 and 3, the last one";
    if (report.step > 0) {
      EXPECT_LE(report.step_s.count() + report.metrics.at("timing_s/testing"), took.count());
    }
    EXPECT_EQ(trained(report), trained(expected)) << "step " << report.step;
    EXPECT_EQ(report.resident_bytes, expected.resident_bytes);
    for (LiveJob* each : {&job, &plain}) {
      if (report.step == 0) switch_to(*each, options, uniform_plan(options, {2, 1}, 1));
    }
  }
  EXPECT_EQ(job.state_hashes(), plain.state_hashes());
}

TEST(ValidationTest, AResumedJobValidatesAtTheSameSteps) {
  const LiveOptions options = validated_job(/*devices=*/1, /*steps=*/2);
  const Plan plan = uniform_plan(options, {1, 1}, 1);
  const auto root = testing::tiny_model() / "checkpoints";
  LiveJob first(options, plan);
  first.run_step();
  first.save(root, Json(), 1);
  LiveJob second(options, plan);
  second.resume(*newest_checkpoint(root));
  EXPECT_TRUE(second.validate_at_start().empty()) << "the first job did that";
  const Metrics expected = first.run_step().metrics;
  ASSERT_TRUE(expected.contains(kScore));
  EXPECT_EQ(second.run_step().metrics.at(kScore), expected.at(kScore));
}

TEST(ValidationTest, LayoutsAndBatchesDoNotChangeItsScores) {
  LiveOptions options = validated_job(/*devices=*/2, /*steps=*/1);
  const auto validated = [&](Layout layout, int dp) {
    return LiveJob(options, uniform_plan(options, layout, dp)).validate_at_start();
  };
  Metrics expected = validated({1, 1}, 1);
  options.data.train_batch_size = 4;  // of 20 samples, 8 at once
  Metrics actual = validated({2, 1}, 1);
  expected.erase("timing_s/testing");
  actual.erase("timing_s/testing");
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(actual.at("val-aux/reward/failures"), 0);
}

TEST(ValidationTest, ABatchTakesNoMoreMemoryThanAStep) {
  const LiveOptions options = validated_job(/*devices=*/1, /*steps=*/1);
  const auto tokenizer = Tokenizer::open(options.data.tokenizer);
  const auto reward = open_reward(options);
  const auto batch_beside = [&](int64_t longest) {
    return Validation(options, longest, /*vocab_size=*/16, *tokenizer, reward.get()).batch_size(6);
  };
  EXPECT_EQ(batch_beside(100), 16) << "a step's samples";
  EXPECT_EQ(batch_beside(2), 16 * (2 + 6) / (7 + 6)) << "for these prompts have seven tokens";
}

TEST(ValidationTest, LeavesTheRecordOfRolloutsAlone) {
  LiveOptions options = validated_job(/*devices=*/1, /*steps=*/1);
  options.rollout_directory = testing::tiny_model() / "rollouts";
  LiveJob job(options, uniform_plan(options, {1, 1}, 1));
  job.validate_at_start();
  EXPECT_FALSE(std::filesystem::exists(options.rollout_directory));
  job.run_step();
  EXPECT_TRUE(std::filesystem::exists(options.rollout_directory)) << "a step writes there";
}

// Samples that share their noise with none of the first steps': the same prompt at the same weights
// gets other responses.
TEST(ValidationTest, DrawsNoiseOfItsOwn) {
  LiveOptions options = validated_job(/*devices=*/1, /*steps=*/1);
  options.validation.every = -1;
  options.data.train_file = options.validation.file;
  options.data.shuffle = false;
  options.data.train_batch_size = 10;  // all of them, as in a validation
  options.reward = "response_length";
  options.reward_options = {{"sign", 1}};
  LiveJob job(options, uniform_plan(options, {1, 1}, 1));
  const Metrics before = job.validate_at_start();
  EXPECT_NE(job.run_step().metrics.at("critic/score/mean"), before.at(kScore));
}

TEST(ValidationTest, GreedyResponsesToAPromptAreEqual) {
  LiveOptions options = validated_job(/*devices=*/1, /*steps=*/1);
  options.reward = "response_length";
  options.reward_options = {{"sign", 1}};
  options.validation.sampling.greedy = true;
  const auto mean_of = [&](int64_t samples) {
    options.validation.samples_per_prompt = samples;
    const Metrics metrics = LiveJob(options, uniform_plan(options, {1, 1}, 1)).validate_at_start();
    return metrics.at("val-core/unknown/reward/mean@" + std::to_string(samples));
  };
  EXPECT_EQ(mean_of(1), mean_of(3));
}

TEST(ValidationTest, ScoresAreMeansByDataSource) {
  LiveOptions options = validated_job(/*devices=*/1, /*steps=*/1);
  write_text(options.validation.file, R"({"prompt": "1,2:9,3", "data_source": "a/b"})"
                                      "\n"
                                      R"({"prompt": "3,4:9,3", "data_source": "c"})"
                                      "\n"
                                      R"({"prompt": "5,6:9,3", "data_source": "a/b"})");
  options.reward = "response_length";
  options.reward_options = {{"sign", 1}};
  options.ignore_eos = true;
  const Metrics metrics = LiveJob(options, uniform_plan(options, {1, 1}, 1)).validate_at_start();
  EXPECT_EQ(metrics.at("val-aux/response_length/mean"), 6);
  EXPECT_EQ(metrics.at("val-core/a/b/reward/mean@2"), metrics.at("val-core/c/reward/mean@2"));
  EXPECT_FALSE(metrics.contains(kScore));
}

TEST(ValidationTest, NamesTheFileOfABadPrompt) {
  LiveOptions options = validated_job(/*devices=*/1, /*steps=*/1);
  write_text(options.validation.file, R"({"prompt_ids": [99]})");
  try {
    LiveJob job(options, uniform_plan(options, {1, 1}, 1));
    FAIL() << "a token outside the vocabulary was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("validation.jsonl row 1: token 99"));
  }
}

}  // namespace
}  // namespace nereus
