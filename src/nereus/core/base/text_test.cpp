#include "nereus/core/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nereus {
namespace {

using ::testing::ElementsAre;

TEST(Text, JoinAndSplit) {
  EXPECT_EQ(join(std::vector<int>{1, 2, 4}, ", "), "1, 2, 4");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, "/"), "a/b");
  EXPECT_EQ(join(std::vector<int>{}, ", "), "");
  EXPECT_THAT(split("a,b,,c", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Text, NearestSuggestsTyposOnly) {
  const std::vector<std::string> keys = {"train_batch_size", "max_prompt_length", "kl_coef", "lr"};
  EXPECT_EQ(nearest("train_batchsize", keys), "train_batch_size");
  EXPECT_EQ(nearest("max_promt_lenght", keys), "max_prompt_length");
  EXPECT_EQ(nearest("kl_coeff", keys), "kl_coef");
  EXPECT_EQ(nearest("kl_coef", keys), "kl_coef");
  EXPECT_EQ(nearest("temperature", keys), "");
  // The limit: two edits for a short word, a third of a long one.
  EXPECT_EQ(nearest("abcd", std::vector<std::string>{"abxy"}), "abxy");
  EXPECT_EQ(nearest("abcd", std::vector<std::string>{"axyz"}), "");
  EXPECT_EQ(nearest("abcdefghi", std::vector<std::string>{"abcdefxyz"}), "abcdefxyz");
  EXPECT_EQ(nearest("lr", std::vector<std::string>{}), "");
}

TEST(Text, NearestPrefersTheCloserCandidate) {
  EXPECT_EQ(nearest("ppo_epoch", std::vector<std::string>{"no_epoch", "ppo_epochs"}), "ppo_epochs");
  EXPECT_EQ(nearest("abc", std::vector<std::string>{"abd", "abe"}), "abd");  // first of equals
}

TEST(Text, FormatNumber) {
  EXPECT_EQ(format_number(3.14159265), "3.142");
  EXPECT_EQ(format_number(0.5, "%.2f"), "0.50");
}

TEST(Text, ShownTextCannotGarbleATerminal) {
  EXPECT_EQ(shown("tiny"), "\"tiny\"");
  EXPECT_EQ(shown("a\x1b[2J\n\xff\xc3"), R"("a\x1b[2J\x0a\xff\xc3")");
  EXPECT_EQ(shown("größe ≤ 😀"), "\"größe ≤ 😀\"");
  EXPECT_EQ(shown("äää", 3), "\"ää…\"");
}

TEST(Text, NearestTakesNoTimeForWordsThatAreNoKeys) {
  EXPECT_EQ(nearest(std::string(10'000'000, 'a'), std::vector<std::string>{"a", "b"}), "");
}

}  // namespace
}  // namespace nereus
