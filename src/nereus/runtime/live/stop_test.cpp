// A job that is told to stop, at any moment of a step.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "nereus/runtime/files/files.h"
#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::tiny_job;
using testing::uniform_plan;

constexpr int kSteps = 3;

class Stop : public ::testing::TestWithParam<std::pair<Layout, int>> {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("nereus_stop_" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
    const auto& [layout, dp] = GetParam();
    options_ = tiny_job(layout.devices() * dp, kSteps);
    options_.ppo.adaptive_kl = true;
    options_.ppo.kl_horizon = 20;
    plan_ = uniform_plan(options_, layout, dp);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path root_;
  LiveOptions options_;
  Plan plan_;
};

// One session: runs until it is told to stop, some time after it began, or to the end. What it has
// reported is added to `metrics`.
void work_until(LiveJob& job, std::atomic<bool>& stop, std::chrono::microseconds patience,
                std::vector<std::map<std::string, double>>& metrics) {
  stop = false;
  std::thread user([&] {
    std::this_thread::sleep_for(patience);
    stop = true;
  });
  while (!job.done() && !stop) {
    const auto before = job.state_hashes();
    const int step = job.step();
    StepReport report = job.run_step();
    EXPECT_TRUE(job.intact());
    if (report.abandoned) {
      EXPECT_TRUE(stop);
      EXPECT_EQ(job.state_hashes(), before);
      EXPECT_EQ(job.step(), step);
    } else {
      EXPECT_EQ(job.step(), step + 1);
      metrics.push_back(std::move(report.metrics));
    }
  }
  user.join();
}

// Of a step, without what the clock or the memory said.
std::map<std::string, double> numbers_of(const std::map<std::string, double>& metrics) {
  std::map<std::string, double> numbers;
  for (const auto& [key, value] : metrics) {
    if (key.starts_with("actor/") || key.starts_with("critic/")) numbers[key] = value;
  }
  return numbers;
}

TEST_P(Stop, AChainOfStopsAndResumesIsBitEqualToOneRun) {
  std::vector<std::map<std::string, double>> expected;
  std::map<std::string, uint64_t> hashes;
  std::chrono::microseconds took{};
  {
    LiveJob whole(options_, plan_);
    const auto begin = std::chrono::steady_clock::now();
    while (!whole.done()) expected.push_back(whole.run_step().metrics);
    took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                                 begin);
    hashes = whole.state_hashes();
  }
  std::mt19937 random(7);
  std::atomic<bool> stop = false;
  options_.stop = StopToken(stop);
  std::vector<std::map<std::string, double>> found;
  int sessions = 0;
  for (int done = 0; done < kSteps; ++sessions) {
    ASSERT_LT(sessions, 100) << "it gets nowhere";
    LiveJob job(options_, plan_);
    if (const auto checkpoint = newest_checkpoint(root_)) job.resume(*checkpoint);
    EXPECT_EQ(job.step(), done);
    std::uniform_int_distribution<int64_t> moment(0, took.count() / 2);
    work_until(job, stop, std::chrono::microseconds(moment(random)), found);
    job.save(root_, Json(), 1);
    done = job.step();
    if (job.done()) {
      EXPECT_EQ(job.state_hashes(), hashes);
    }
  }
  EXPECT_GT(sessions, 1) << "nothing was interrupted";
  ASSERT_EQ(found.size(), expected.size());
  for (size_t step = 0; step < found.size(); ++step) {
    EXPECT_EQ(numbers_of(found[step]), numbers_of(expected[step])) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Stop,
                         ::testing::Values(std::pair(Layout{1, 1}, 1), std::pair(Layout{1, 1}, 2),
                                           std::pair(Layout{2, 1}, 1), std::pair(Layout{1, 2}, 1)));

TEST(StopOfValidation, IsMadeUpForAfterAResume) {
  const auto root =
      std::filesystem::temp_directory_path() / ("nereus_stop_v_" + std::to_string(::getpid()));
  LiveOptions options = tiny_job(1, 2);
  options.validation.file = options.data.train_file;
  options.validation.every = 1;
  options.validation.before_training = false;
  const Plan plan = uniform_plan(options, {1, 1}, 1);
  const std::map<std::string, double> expected = LiveJob(options, plan).run_step().metrics;

  std::atomic<bool> stop = false;
  options.stop = StopToken(stop);
  options.validation.before_training = true;
  LiveJob job(options, plan);
  stop = true;
  EXPECT_TRUE(job.validate_at_start().empty());
  EXPECT_TRUE(job.intact());
  job.save(root, Json(), 1);
  options.validation.before_training = false;
  stop = false;
  LiveJob resumed(options, plan);
  resumed.resume(*newest_checkpoint(root));
  EXPECT_TRUE(resumed.validate_at_start().contains("timing_s/testing"));
  EXPECT_TRUE(resumed.validate_at_start().empty()) << "it is done";
  EXPECT_EQ(numbers_of(resumed.run_step().metrics), numbers_of(expected));
  std::filesystem::remove_all(root);
}

TEST(AFailedStep, LeavesTheBoundaryBeforeItIfNoWeightHasChanged) {
  LiveOptions options = tiny_job(1, 2);
  options.data.train_file = testing::tiny_model() / "no_tasks.jsonl";
  write_text(options.data.train_file, "{\"prompt\": \"7,8\"}\n{\"prompt\": \"4,1\"}\n");
  options.data.train_batch_size = options.ppo.mini_batch = 2;
  options.max_reward_failures = 0;
  LiveJob job(options, uniform_plan(options, {1, 1}, 1));
  const auto before = job.state_hashes();
  EXPECT_THROW(job.run_step(), Error) << "responses to prompts that are no task cannot be scored";
  EXPECT_TRUE(job.intact());
  EXPECT_EQ(job.step(), 0);
  EXPECT_EQ(job.state_hashes(), before);
}

TEST(AFailedStep, ThatHasChangedWeightsIsNotSaved) {
  LiveOptions options = tiny_job(1, 2);
  options.actor_optimizer.lr = 1e300;
  options.ppo.mini_batch = options.data.train_batch_size;  // one update a step
  LiveJob job(options, uniform_plan(options, {1, 1}, 1));
  job.run_step();
  EXPECT_THROW(job.run_step(), Error)
      << "the critic is updated, the actor's gradients are no numbers";
  EXPECT_FALSE(job.intact());
  const auto root = std::filesystem::temp_directory_path() / "nereus_never_saved";
  std::filesystem::remove_all(root);
  EXPECT_THROW(job.save(root, Json(), 1), Error);
  EXPECT_FALSE(std::filesystem::exists(root));
}

}  // namespace
}  // namespace nereus
