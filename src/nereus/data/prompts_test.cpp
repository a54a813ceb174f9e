#include "nereus/data/prompts.h"

#include <gmock/gmock.h>

#include "nereus/data/files.h"
#include "nereus/data/testing.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Prompt> read(const std::string& content, const std::string& key = "prompt") {
  const auto file = fresh_directory() / "p.jsonl";
  write_text(file, content);
  return read_prompts(file, key);
}

std::string refusal(const std::string& content) {
  return error_message(ErrorCode::kInvalidInput, [&] { read(content); });
}

TEST(Prompts, AllSchemas) {
  const auto prompts = read(
      R"({"prompt": "Once"})"
      "\n"
      R"({"prompt": "2+2", "label": 4})"
      "\n\n"
      R"({"prompt": "3+3", "answer": "6"})"
      "\r\n"
      R"({"data_source": "gsm8k", "prompt": [{"role": "user", "content": "Hi"}],)"
      R"( "reward_model": {"style": "rule", "ground_truth": "72"}, "extra_info": {"index": 5}})");
  ASSERT_EQ(prompts.size(), 4U);
  EXPECT_EQ(prompts[0].text, "Once");
  EXPECT_EQ(prompts[0].ground_truth, "");
  EXPECT_EQ(prompts[1].ground_truth, "4");
  EXPECT_EQ(prompts[2].ground_truth, "6");
  EXPECT_EQ(prompts[3].text, "Hi");
  EXPECT_EQ(prompts[3].ground_truth, "72");
  EXPECT_EQ(prompts[3].data_source, "gsm8k");
  EXPECT_EQ(prompts[3].extra["extra_info"]["index"], 5);
}

TEST(Prompts, MessagesKeepTheirOrderAndTheirKeys) {
  const auto prompts = read(
      "\n"
      R"({"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},)"
      R"( {"role": "assistant", "content": "Hello", "note": null},)"
      R"( {"role": "user", "content": "2+2?"}], "answer": 4})"
      "\n"
      R"({"prompt": "a text", "prompt_ids": null})");
  EXPECT_EQ(prompts.at(0).line, 2);
  EXPECT_EQ(prompts[0].text, "2+2?");
  EXPECT_EQ(prompts[0].messages,
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":"Hello","note":null},)"
            R"({"role":"user","content":"2+2?"}])");
  EXPECT_EQ(prompts.at(1).line, 3);
  EXPECT_EQ(prompts[1].text, "a text");
  EXPECT_EQ(prompts[1].messages, "");
}

TEST(Prompts, TokensInsteadOfText) {
  const auto prompts = read(R"({"prompt_ids": [5, 0, 7], "answer": 12})");
  EXPECT_EQ(prompts.at(0).text, "");
  EXPECT_EQ(prompts.at(0).ids, (std::vector<int64_t>{5, 0, 7}));
  EXPECT_EQ(prompts.at(0).ground_truth, "12");
}

TEST(Prompts, OtherKey) { EXPECT_EQ(read(R"({"input": "x"})", "input")[0].text, "x"); }

TEST(Prompts, BadRowsAreNamed) {
  EXPECT_THAT(refusal("{\"prompt\": \"a\"}\n{\"prompt\": "),
              AllOf(HasSubstr("p.jsonl row 2"), HasSubstr("JSON")));
  EXPECT_THAT(refusal(R"({"question": "a"})"), AllOf(HasSubstr("row 1"), HasSubstr("\"prompt\"")));
  EXPECT_THAT(refusal(R"({"prompt": 5})"), HasSubstr("string or a list"));
  EXPECT_THAT(refusal(R"({"prompt": [{"role": "system", "content": "a"}]})"), HasSubstr("user"));
  EXPECT_THAT(refusal(R"({"prompt": []})"), HasSubstr("user"));
  EXPECT_THAT(refusal(R"({"prompt": ["Hi"]})"), HasSubstr("not \"Hi\""));
  EXPECT_THAT(refusal(R"({"prompt": [{"content": "a"}]})"), HasSubstr("\"role\""));
  EXPECT_THAT(refusal(R"({"prompt": [{"role": "user", "content": 5}]})"),
              AllOf(HasSubstr("\"content\""), HasSubstr("5")));
  EXPECT_THAT(refusal(R"({"prompt": ""})"), HasSubstr("empty"));
  EXPECT_THAT(refusal(R"({"prompt_ids": []})"), HasSubstr("empty"));
  EXPECT_THAT(refusal(R"({"prompt_ids": 7})"), HasSubstr("a list, not 7"));
  for (const char* id : {R"("3")", "true", "null", "1.5", "1.0", "[1]", "18446744073709551615"}) {
    EXPECT_THAT(refusal(std::string(R"({"prompt_ids": [4, )") + id + "]}"),
                AllOf(HasSubstr("p.jsonl row 1"),
                      HasSubstr(std::string("prompt_ids[1] is ") + id + "; a token id")));
  }
  EXPECT_THAT(refusal("[1]"), HasSubstr("object"));
  EXPECT_THAT(refusal("\n \n"), HasSubstr("no rows"));
}

}  // namespace
}  // namespace nereus
