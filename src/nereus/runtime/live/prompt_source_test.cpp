#include "nereus/runtime/live/prompt_source.h"

#include <gmock/gmock.h>

#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/testing.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 512;
constexpr const char* kUser = R"({"prompt": [{"role": "user", "content": "Once upon a time"}]})";
constexpr const char* kSystemAndUser =
    R"({"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]})";

class PromptSourceTest : public ::testing::Test {
 protected:
  PromptSourceTest() : directory_(fresh_directory()) {
    const auto stories = std::filesystem::path(NEREUS_SOURCE_DIR) / "assets/stories260K";
    std::filesystem::copy(stories / "tokenizer.json", directory_);
  }

  void set_template(const std::string& text) {
    write_text(directory_ / "chat_template.jinja", text);
  }

  PromptSource source(const std::string& rows) const {
    write_text(directory_ / "p.jsonl", rows);
    const DataOptions options = {.train_file = directory_ / "p.jsonl",
                                 .prompt_key = "prompt",
                                 .tokenizer = directory_,
                                 .max_prompt_length = 32};
    return {options, *Tokenizer::open(directory_), kVocabulary, /*seed=*/0};
  }

  std::string refusal(const std::string& rows) const {
    return error_message(ErrorCode::kInvalidInput, [&] { source(rows); });
  }

  std::filesystem::path directory_;
};

TEST_F(PromptSourceTest, ATextIsTakenAsItIs) {
  set_template("<s>{{ messages[0].content }}");
  EXPECT_THAT(source(R"({"prompt": "Once upon a time"})").at(0).tokens,
              ElementsAre(1, 403, 407, 261, 378));
}

TEST_F(PromptSourceTest, MessagesGoThroughTheTemplate) {
  set_template("{{ messages[-1].content }}{% if add_generation_prompt %}</s>{% endif %}");
  EXPECT_THAT(source(kUser).at(0).tokens, ElementsAre(403, 407, 261, 378, 2));
}

TEST_F(PromptSourceTest, WithoutTemplateOneQuestionIsAText) {
  PromptSource prompts = source(kUser);
  EXPECT_THAT(prompts.at(0).tokens, ElementsAre(1, 403, 407, 261, 378));
  EXPECT_EQ(prompts.at(0).prompt.text, "Once upon a time");
  EXPECT_THAT(refusal(std::string(kUser) + "\n\n" + kSystemAndUser),
              AllOf(HasSubstr("p.jsonl row 3: 2 messages, the first from \"system\""),
                    HasSubstr(directory_.string() + " has no chat template"),
                    HasSubstr("give data.tokenizer")));
}

TEST_F(PromptSourceTest, RefusalsOfATemplateNameTheRow) {
  set_template(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}x");
  EXPECT_THAT(refusal(std::string(kUser) + "\n" + kSystemAndUser),
              AllOf(HasSubstr("p.jsonl row 2: chat template of"), HasSubstr("no system")));
}

TEST_F(PromptSourceTest, TokensOutsideTheVocabularyNameRowAndValue) {
  EXPECT_EQ(source(R"({"prompt_ids": [0, 511]})").size(), 1);
  EXPECT_THAT(refusal("\n{\"prompt_ids\": [0, 512]}"),
              HasSubstr("p.jsonl row 2: token 512 is not in the actor's vocabulary of 512"));
  EXPECT_THAT(refusal("\n{\"prompt_ids\": [-1]}"), HasSubstr("row 2: token -1 is not"));
}

TEST_F(PromptSourceTest, TooLongPromptsNameTheirRow) {
  const Json row = {{"prompt_ids", std::vector<int64_t>(33)}};
  EXPECT_THAT(refusal(std::string("\n") + row.dump()), HasSubstr("the first is row 2 with 33"));
}

// Groups are those of the batch, as verl's: also if an epoch ends within it, or several do.
TEST_F(PromptSourceTest, APromptTwiceInABatchIsTwoGroups) {
  PromptSource prompts = source("{\"prompt_ids\": [1]}\n{\"prompt_ids\": [2]}");
  const DataOptions data = {.train_batch_size = 5, .samples_per_prompt = 2};
  const Experience batch = start_batch(prompts, data, /*position=*/1, /*drawn=*/1);
  ASSERT_EQ(batch.size(), 10u);
  for (size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(batch[i].group, static_cast<int64_t>(i / 2));
    EXPECT_EQ(batch[i].prompt_index, static_cast<int64_t>((i / 2 + 1) % 2));
  }
}

}  // namespace
}  // namespace nereus
