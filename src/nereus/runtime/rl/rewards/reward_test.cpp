#include "nereus/runtime/rl/rewards/reward.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "nereus/core/base/error.h"
#include "nereus/runtime/rl/rewards/digit_completion.h"
#include "nereus/runtime/rl/rewards/place_score.h"
#include "nereus/runtime/rl/testing.h"

namespace nereus {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kLexicon =
    (std::filesystem::path(NEREUS_SOURCE_DIR) / "assets/vader/vader_lexicon.txt").string();

double sentiment(const std::string& text, int sign = 1) {
  const auto reward = make_reward("vader_sentiment", {{"lexicon", kLexicon}, {"sign", sign}});
  return reward->score({.response = text}).score;
}

std::string refusal(const std::string& name, const Json& options) {
  try {
    make_reward(name, options);
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kInvalidInput));
    return error.what();
  }
  return "no error";
}

std::vector<double> digits(const std::string& prompt, const std::string& response, int64_t tokens) {
  return DigitCompletion()
      .score({.prompt = prompt, .response = response, .response_tokens = tokens})
      .token_scores;
}

TEST(VaderSentiment, IsTheNormalisedLexiconSum) {
  // Lexicon: happy 2.7, sad -2.1.
  EXPECT_DOUBLE_EQ(sentiment("She was happy"), 2.7 / std::sqrt(2.7 * 2.7 + 15));
  EXPECT_DOUBLE_EQ(sentiment("\"Happy, HAPPY!\" said Tom."), 5.4 / std::sqrt(5.4 * 5.4 + 15));
  EXPECT_DOUBLE_EQ(sentiment("happy sad"), 0.6 / std::sqrt(0.6 * 0.6 + 15));
  EXPECT_DOUBLE_EQ(sentiment("not happy"), sentiment("happy"));  // no negation rule
  EXPECT_DOUBLE_EQ(sentiment("sad", -1), -sentiment("sad"));
  EXPECT_EQ(sentiment("the table"), 0);
  EXPECT_EQ(sentiment(""), 0);
}

TEST(VaderSentiment, BadOptionsAreNamed) {
  EXPECT_THAT(refusal("vader_sentiment", {}), HasSubstr("lexicon"));
  EXPECT_THAT(refusal("vader_sentiment", {{"lexicon", "absent.txt"}}), HasSubstr("absent.txt"));
  EXPECT_THAT(refusal("vader_sentiment", {{"lexicon", kLexicon}, {"sign", 2}}),
              HasSubstr("1 or -1"));
  EXPECT_THAT(refusal("vader_sentiment", {{"lexicon", kLexicon}, {"sgin", 1}}),
              HasSubstr("did you mean \"sign\""));
  const std::string broken = ::testing::TempDir() + "nereus_lexicon.txt";
  std::ofstream(broken) << "good\t1.9\nbad minus\n";
  EXPECT_THAT(refusal("vader_sentiment", {{"lexicon", broken}}), HasSubstr("line 2"));
}

TEST(DigitCompletion, AnswersAreVerls) {
  EXPECT_EQ(digit_answer("9,10:20,2"), "11,12");
  EXPECT_EQ(digit_answer("7,8:9,3"), "0,1,2");
  EXPECT_EQ(digit_answer("5,3:9,2"), "1,8");
  EXPECT_EQ(digit_answer("9,8:9,2"), "7,6");
  EXPECT_EQ(digit_answer("7,8:20,0"), "");
  for (const char* bad : {"", "7,8", "7,8:0,1", "7,8:9,-1", "a,b:9,1", "7,8:9,1 "}) {
    EXPECT_THROW(digit_answer(bad), Error) << bad;
  }
}

TEST(DigitCompletion, DenseUntilTheFirstMismatch) {
  // Answer "0,1": each character and the end token are worth 1/4.
  EXPECT_THAT(digits("7,8:9,2", "0,1", 4), ElementsAre(0.25, 0.25, 0.25, 0.25));
  EXPECT_THAT(digits("7,8:9,2", "0,2", 4), ElementsAre(0.25, 0.25, 0, 0));
  EXPECT_THAT(digits("7,8:9,2", "1,1", 4), ElementsAre(0, 0, 0, 0));
  // Ending too early earns what the last character did; going on after the answer earns nothing.
  EXPECT_THAT(digits("7,8:9,2", "0,", 3), ElementsAre(0.25, 0.25, 0.25));
  EXPECT_THAT(digits("7,8:9,2", "0,1,", 5), ElementsAre(0.25, 0.25, 0.25, 0, 0));
  EXPECT_THAT(digits("7,8:9,2", "0,", 2), ElementsAre(0.25, 0.25));  // cut by the limit
}

TEST(DigitCompletion, EmptyAnswers) {
  EXPECT_THAT(digits("7,8:9,0", "", 1), ElementsAre(1));
  EXPECT_THAT(digits("7,8:9,0", "1", 2), ElementsAre(0, 0));
  EXPECT_THAT(digits("7,8:9,1", "", 1), ElementsAre(0));
}

TEST(DigitCompletion, NeedsOneCharacterPerToken) {
  EXPECT_THROW(digits("7,8:9,2", "0,1", 2), Error);
}

double answer_score(const std::string& response, const std::string& ground_truth) {
  return make_reward("last_number", {})
      ->score({.response = response, .ground_truth = ground_truth})
      .score;
}

TEST(LastNumber, ComparesNumbersNotText) {
  EXPECT_EQ(answer_score("5 + 7 = 12", "12"), 1);
  EXPECT_EQ(answer_score("So she pays $1,250.00.", "1250"), 1);
  EXPECT_EQ(answer_score("#### 1234567", "1,234,567"), 1);
  EXPECT_EQ(answer_score("It is -3.5", "-3.5"), 1);
  EXPECT_EQ(answer_score("12, or 13", "12"), 0);
  EXPECT_EQ(answer_score("1,25", "125"), 0) << "no thousands";
  EXPECT_EQ(answer_score("twelve", "12"), 0);
  EXPECT_EQ(answer_score("", "0"), 0);
  EXPECT_THROW(answer_score("12", "twelve"), Error);
}

TEST(ResponseLength, CountsTokens) {
  const RewardInput input{.response = "ignored", .response_tokens = 17};
  EXPECT_EQ(make_reward("response_length", {})->score(input).score, 17);
  EXPECT_EQ(make_reward("response_length", {{"sign", -1}})->score(input).score, -17);
}

TEST(PlaceScore, OnTheLastTokenOrDense) {
  Experience experience = samples_of({3, 0});
  place_score(experience[0], {.score = 2});
  EXPECT_EQ(experience[0].score, 2);
  EXPECT_THAT(experience[0].token_scores, ElementsAre(0, 0, 2));
  place_score(experience[0], {.token_scores = {0.5, 0, 0.25}});
  EXPECT_EQ(experience[0].score, 0.75);
  EXPECT_THAT(experience[0].token_scores, ElementsAre(0.5, 0, 0.25));
  place_score(experience[1], {.score = 2});
  EXPECT_EQ(experience[1].score, 2);
  EXPECT_TRUE(experience[1].token_scores.empty());
  EXPECT_THROW(place_score(experience[0], {.token_scores = {1}}), Error);
}

TEST(MakeReward, UnknownNamesListTheKnown) {
  EXPECT_THAT(refusal("vader", {}), HasSubstr("vader_sentiment, digit_completion, last_number"));
  EXPECT_THAT(refusal("digit_completion", {{"x", 1}}), HasSubstr("it has none"));
}

}  // namespace
}  // namespace nereus
