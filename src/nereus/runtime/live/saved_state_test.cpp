// Resuming a job from the checkpoint of a job that was not quite the same.
#include "nereus/runtime/live/saved_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::tiny_job;
using testing::uniform_plan;

class SavedStateTest : public ::testing::Test {
 protected:
  ~SavedStateTest() override { std::filesystem::remove_all(root_); }
  std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("nereus_saved_state_" + std::to_string(::getpid()));
};

TEST_F(SavedStateTest, RefusesTheCheckpointOfAnotherJob) {
  LiveOptions options = tiny_job(/*devices=*/1, /*steps=*/2);
  const Plan plan = uniform_plan(options, {1, 1}, 1);
  LiveJob(options, plan).save(root_, Json(), 1);
  const auto message_of = [&](const LiveOptions& other) -> std::string {
    try {
      LiveJob(other, plan).resume(*newest_checkpoint(root_));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
      return error.what();
    }
    return "resumed";
  };
  EXPECT_EQ(message_of(options), "resumed");
  LiveOptions other = options;
  other.seed = 8;
  EXPECT_THAT(message_of(other), ::testing::HasSubstr("trainer.seed is 8"));
  other = options;
  other.dtype = DType::kFloat32;
  EXPECT_THAT(message_of(other), ::testing::HasSubstr("model.dtype of then"));
}

// A batch of another size goes on behind the prompts that were used.
TEST_F(SavedStateTest, ResumesBehindThePromptsThatWereUsed) {
  LiveOptions options = tiny_job(/*devices=*/1, /*steps=*/2);
  const Plan plan = uniform_plan(options, {1, 1}, 1);
  LiveJob first(options, plan);
  first.run_step();
  first.save(root_, Json(), 1);
  EXPECT_EQ(newest_checkpoint(root_)->state.at("position"), options.data.train_batch_size);
  options.data.train_batch_size *= 2;
  LiveJob second(options, plan);
  second.resume(*newest_checkpoint(root_));
  second.run_step();
  second.save(root_, Json(), 1);
  EXPECT_EQ(newest_checkpoint(root_)->state.at("position"), 8 + 16);
}

}  // namespace
}  // namespace nereus
