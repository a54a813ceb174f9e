#include "nereus/runtime/live/rewarding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 16;

RewardTrial tried(const std::string& reward, const std::vector<std::string>& rows) {
  DataOptions data = testing::tiny_job(1, 1).data;
  data.train_file = testing::tiny_model() / "prompts.jsonl";
  std::string text;
  for (const std::string& row : rows) text += row + "\n";
  write_text(data.train_file, text);
  const auto tokenizer = Tokenizer::open(data.tokenizer);
  const PromptSource prompts(data, *tokenizer, kVocabulary, /*seed=*/3);
  return try_reward(*make_reward(reward, {}), *tokenizer, prompts, kVocabulary);
}

TEST(TryReward, NamesTheFirstPromptOfTheFile) {
  const RewardTrial trial =
      tried("digit_completion", {R"({"prompt": "7,8:9,2"})", R"({"prompt": "7,8"})",
                                 R"({"prompt": "5,3:9,2"})", R"({"prompt": "8"})"});
  EXPECT_EQ(trial.failures, 2);
  EXPECT_EQ(trial.first, 1);
  EXPECT_THAT(trial.message, HasSubstr("not \"7,8\""));
}

TEST(TryReward, PassesPromptsThatHaveWhatItNeeds) {
  const RewardTrial trial = tried(
      "last_number", {R"({"prompt": "1", "answer": 1})", R"({"prompt": "2", "label": "2,000"})"});
  EXPECT_EQ(trial.failures, 0);
  EXPECT_EQ(trial.first, -1);
}

}  // namespace
}  // namespace nereus
