#include "nereus/runtime/live/early_scores.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

// Scores are the lengths of responses; it says when it is given one, and may be made to wait.
class WatchedReward final : public Reward {
 public:
  class Calls final : public RewardCalls {
   public:
    explicit Calls(const WatchedReward& reward) : reward_(reward) {}
    void add(size_t index, const RewardInput& input) override {
      results_[index] = {reward_.score(input)};
      reward_.given.release();
    }
    std::map<size_t, RewardResult> poll(std::chrono::milliseconds patience) override {
      if (reward_.breaks) throw Error(ErrorCode::kInvalidInput, "broken");
      if (!reward_.waits) return std::exchange(results_, {});
      std::this_thread::sleep_for(patience);
      return {};
    }

   private:
    const WatchedReward& reward_;
    std::map<size_t, RewardResult> results_;
  };

  RewardOutput score(const RewardInput& input) const override {
    ++scored;
    return {.score = static_cast<double>(input.response_tokens)};
  }
  bool is_slow() const override { return true; }
  std::unique_ptr<RewardCalls> begin() const override { return std::make_unique<Calls>(*this); }

  mutable std::counting_semaphore<> given{0};
  mutable std::atomic<size_t> scored = 0;
  std::atomic<bool> waits = false, breaks = false;
};

class EarlyScoresTest : public ::testing::Test {
 protected:
  static Sample sample(int64_t tokens) {
    Sample sample;
    sample.response.assign(tokens, 5);
    return sample;
  }

  DataOptions data_ = testing::tiny_job(1, 1).data;
  std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::open(data_.tokenizer);
  PromptSource prompts_{data_, *tokenizer_, 16, 1};
  WatchedReward reward_;
};

TEST_F(EarlyScoresTest, ScoringBeginsWithTheFirstResponse) {
  EarlyScores early(reward_, *tokenizer_, prompts_);
  reward_.waits = true;
  early.add(3, sample(4));
  reward_.given.acquire();  // although others are still to come
  for (size_t i = 0; i < 3; ++i) early.add(i, sample(static_cast<int64_t>(i) + 1));
  early.add(3, sample(4));
  // These are given to it while the first is under way.
  for (size_t i = 0; i < 3; ++i) reward_.given.acquire();
  reward_.waits = false;
  const auto results = early.take({});
  ASSERT_EQ(results.size(), 4u);
  for (const auto& [index, result] : results) {
    EXPECT_EQ(result.output.score, static_cast<double>(index + 1));
  }
  EXPECT_EQ(reward_.scored, 4u) << "each once";
}

TEST_F(EarlyScoresTest, NothingToScore) {
  EarlyScores early(reward_, *tokenizer_, prompts_);
  EXPECT_TRUE(early.take({}).empty());
}

TEST_F(EarlyScoresTest, WhatScoringThrowsIsThrownWhereResultsAreWanted) {
  reward_.breaks = true;
  EarlyScores early(reward_, *tokenizer_, prompts_);
  early.add(0, sample(1));
  EXPECT_THROW(early.take({}), Error);
}

TEST_F(EarlyScoresTest, AStopEndsTheWait) {
  reward_.waits = true;
  std::atomic<bool> stop = true;
  EarlyScores early(reward_, *tokenizer_, prompts_);
  early.add(0, sample(1));
  EXPECT_THROW(early.take(StopToken(stop)), Stopped);
}

// Also of responses that nobody asks for any more, as in a step that is given up.
TEST_F(EarlyScoresTest, MayBeDroppedAtAnyTime) {
  reward_.waits = true;
  for (const bool begun : {false, true}) {
    EarlyScores early(reward_, *tokenizer_, prompts_);
    early.add(0, sample(1));
    if (begun) reward_.given.acquire();
    early.add(1, sample(1));
  }
}

}  // namespace
}  // namespace nereus
