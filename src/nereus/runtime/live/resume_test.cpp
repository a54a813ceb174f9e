// What a resumed job takes from the checkpoint, and what from its options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::tiny_job;

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() : root_(testing::tiny_model() / "resume") {
    std::filesystem::remove_all(root_);
    options_ = tiny_job(/*devices=*/1, /*steps=*/9);
    options_.data.train_file = root_ / "data" / "train.jsonl";
    options_.data.train_batch_size = options_.ppo.mini_batch = 2;
    options_.data.samples_per_prompt = 1;
    write_rows(options_.data.train_file, 5);
  }
  ~ResumeTest() override { std::filesystem::remove_all(root_); }

  static void write_rows(const std::filesystem::path& file, int rows) {
    std::string text;
    for (int row = 0; row < rows; ++row) {
      text += "{\"prompt\": \"" + std::to_string(row) + ",8:9,2\"}\n";
    }
    write_text(file, text);
  }

  LiveJob started(const LiveOptions& options) const {
    return {options, testing::uniform_plan(options, {1, 1}, 1)};
  }

  void save_after(int steps, const LiveOptions& options) const {
    std::filesystem::remove_all(root_ / "checkpoints");
    LiveJob job = started(options);
    for (int step = 0; step < steps; ++step) job.run_step();
    job.save(root_ / "checkpoints", Json(), 1);
  }

  // The next step of a job that goes on: its samples; metrics go to metrics_.
  Experience next_step(LiveOptions options) {
    Experience next;
    options.on_experience = [&](const Experience& experience) { next = experience; };
    LiveJob job = started(options);
    job.resume(*newest_checkpoint(root_ / "checkpoints"));
    metrics_ = job.run_step().metrics;
    job.save(root_ / "checkpoints", Json(), 1);
    return next;
  }

  static std::vector<int64_t> rows_of(const Experience& experience) {
    std::vector<int64_t> rows;
    for (const Sample& sample : experience) rows.push_back(sample.prompt_index);
    return rows;
  }

  std::filesystem::path root_;
  LiveOptions options_;
  std::map<std::string, double> metrics_;
};

TEST_F(ResumeTest, TheSameDataGoesOnWhereverItLies) {
  options_.data.shuffle = false;
  save_after(2, options_);
  const auto moved = root_ / "elsewhere.jsonl";
  std::filesystem::rename(options_.data.train_file, moved);
  options_.data.train_file = moved;
  EXPECT_THAT(rows_of(next_step(options_)), ::testing::ElementsAre(4, 0)) << "across the epoch";
}

TEST_F(ResumeTest, OtherDataBeginsAtItsBeginning) {
  options_.data.shuffle = false;
  const auto expect_beginning = [this](const char* what, const LiveOptions& changed) {
    save_after(2, options_);
    ::testing::internal::CaptureStderr();
    const Experience first = next_step(changed);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("begin at their beginning"), std::string::npos) << what;
    LiveOptions alone = changed;
    Experience expected;
    alone.on_experience = [&](const Experience& experience) { expected = experience; };
    LiveJob job = started(alone);
    job.run_step();
    EXPECT_EQ(rows_of(first), rows_of(expected)) << what;
    EXPECT_EQ(first.front().id, 4u) << what << ": no sample has the number of an earlier one";
    ::testing::internal::CaptureStderr();
    job.run_step();
    EXPECT_EQ(rows_of(next_step(changed)), rows_of(expected)) << what << ": and goes on there";
    EXPECT_EQ(::testing::internal::GetCapturedStderr().find("beginning"), std::string::npos);
  };
  LiveOptions changed = options_;
  changed.data.train_file = root_ / "more.jsonl";
  write_rows(changed.data.train_file, 6);
  expect_beginning("more rows", changed);
  changed.data.train_file = root_ / "other.jsonl";
  write_text(changed.data.train_file,
             R"({"prompt": "1,2:9,2"}
{"prompt": "0,8:9,2", "answer": 3}
{"prompt": "1,8:9,2"}
{"prompt": "2,8:9,2"}
{"prompt": "3,8:9,2"})");
  expect_beginning("other rows", changed);
  changed = options_;
  changed.data.shuffle = true;
  expect_beginning("another order", changed);
  changed = options_;
  changed.data.train_file = root_ / "filtered.jsonl";
  write_rows(changed.data.train_file, 12);
  changed.data.max_prompt_length = 8;  // with BOS: ten of the rows
  changed.data.filter_overlong_prompts = true;
  expect_beginning("filtered", changed);
}

TEST_F(ResumeTest, AFixedCoefficientIsTheOptions) {
  options_.ppo.kl_coef = 0.01;
  save_after(1, options_);
  options_.ppo.kl_coef = 0.5;
  next_step(options_);
  EXPECT_EQ(metrics_.at("actor/reward_kl_penalty_coeff"), 0.5);
}

TEST_F(ResumeTest, AnAdaptiveCoefficientIsTheCheckpoints) {
  options_.ppo.kl_coef = 0.01;
  options_.ppo.adaptive_kl = true;
  options_.ppo.kl_horizon = 10;
  save_after(1, options_);
  LiveOptions changed = options_;
  changed.ppo.kl_coef = 0.5;
  next_step(changed);
  EXPECT_DOUBLE_EQ(metrics_.at("actor/reward_kl_penalty_coeff"), 0.01 * (1 - 0.2 * 2 / 10));
  changed.ppo.adaptive_kl = false;
  next_step(changed);
  EXPECT_EQ(metrics_.at("actor/reward_kl_penalty_coeff"), 0.5) << "now fixed";
  changed.ppo.adaptive_kl = true;
  changed.ppo.kl_coef = 0.25;
  next_step(changed);
  EXPECT_EQ(metrics_.at("actor/reward_kl_penalty_coeff"), 0.25) << "now adaptive";
}

}  // namespace
}  // namespace nereus
