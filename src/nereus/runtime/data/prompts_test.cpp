#include "nereus/runtime/data/prompts.h"

#include <gmock/gmock.h>

#include <array>

#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/testing.h"

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
  EXPECT_EQ(prompts[3].extra_info, R"({"index": 5})");
  EXPECT_EQ(prompts[2].extra_info, "");
  EXPECT_EQ(prompts[2].row, R"({"answer":"6","prompt":"3+3"})");
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
            R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},)"
            R"( {"role": "assistant", "content": "Hello", "note": null},)"
            R"( {"role": "user", "content": "2+2?"}])");
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

// As text for rewards that compare, as JSON for those that want the value itself.
TEST(Prompts, GroundTruthKeepsItsTypeAndItsDigits) {
  const std::vector<std::array<std::string, 2>> values = {
      {R"("4\u0032")", "42"},
      {"42", "42"},
      {"12345678901234567890123", "12345678901234567890123"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"1E+2", "1E+2"},
      {"true", "true"},
      {R"(["Paris", 1.50])", R"(["Paris", 1.50])"},
      {R"({"target": ["Paris"]})", R"({"target": ["Paris"]})"},
      {"null", ""}};
  for (const auto& [json, text] : values) {
    for (const std::string& row :
         {R"("answer": )" + json, R"("label": )" + json, R"("label": null, "answer": )" + json,
          R"("answer": "a derivation", "label": 7, "reward_model": {"ground_truth": )" + json +
              "}"}) {
      if (json == "null" && row.find("derivation") != std::string::npos) continue;
      const Prompt prompt = read(R"({"prompt": "a", )" + row + "}").at(0);
      EXPECT_EQ(prompt.ground_truth, text) << row;
      EXPECT_EQ(prompt.ground_truth_json, json) << row;
    }
  }
  const Prompt other =
      read(R"({"prompt": "a", "reward_model": {"ground_truth": null}, "answer": 5})").at(0);
  EXPECT_EQ(other.ground_truth, "5");
  const Prompt none = read(R"({"prompt": "a", "reward_model": "x", "extra_info": [1]})").at(0);
  EXPECT_EQ(none.ground_truth_json + none.extra_info, "");
  const Prompt extra =
      read(R"({"prompt": "a", "extra_info": {"id": 12345678901234567890123}})").at(0);
  EXPECT_EQ(extra.extra_info, R"({"id": 12345678901234567890123})");
}

TEST(Prompts, MessagesAreThoseOfTheChatApis) {
  const std::string call =
      R"({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function"}]})";
  const std::string tool = R"({"role": "tool", "tool_call_id": "1", "name": "f", "content": "4"})";
  const std::string user = R"({"role": "user", "content": [{"type": "text", "text": "2+2?"},)"
                           R"( {"type": "text", "text": "Quick."}]})";
  for (const std::string& first :
       {call, std::string(R"({"role": "assistant", "function_call": {"name": "f"}})"),
        std::string(R"({"role": "developer", "content": "Be brief."})"), tool,
        std::string(R"({"role": "assistant", "content": [], "refusal": null})")}) {
    const Prompt prompt = read(R"({"prompt": [)" + first + ", " + user + "]}").at(0);
    EXPECT_EQ(prompt.text, "2+2?\nQuick.");
    EXPECT_EQ(prompt.messages, "[" + first + ", " + user + "]");
  }
  const Prompt last = read(R"({"prompt": [)" + user + ", " + call + "]}").at(0);
  EXPECT_EQ(last.text, "2+2?\nQuick.");
  const Prompt tools = read(R"({"tools": [{"type": "function"}], "prompt": [)" + user +
                            R"(], "chat_template_kwargs": {"enable_thinking": false}})")
                           .at(0);
  EXPECT_EQ(tools.messages, R"({"messages":[)" + user +
                                R"(],"tools":[{"type": "function"}],)"
                                R"("chat_template_kwargs":{"enable_thinking": false}})");
}

TEST(Prompts, MessagesThatCannotBeHonouredAreNamed) {
  const auto refused = [](const std::string& message) {
    return refusal(R"({"prompt": [{"role": "user", "content": "a"}, )" + message + "]}");
  };
  EXPECT_THAT(refused(R"({"role": "user", "content": null})"), HasSubstr("content"));
  EXPECT_THAT(refused(R"({"role": "user", "content": null, "tool_calls": [1]})"),
              HasSubstr("content"));
  EXPECT_THAT(refused(R"({"role": "assistant", "content": null, "tool_calls": []})"),
              HasSubstr("content"));
  EXPECT_THAT(refused(R"({"role": "assistant"})"), HasSubstr("content"));
  EXPECT_THAT(refused(R"({"role": null, "content": "b"})"), HasSubstr("role"));
  for (const char* part : {R"({"type": "image_url", "image_url": {"url": "x"}})", R"("text")",
                           R"({"type": "text"})", R"({"type": "text", "text": null})", "7"}) {
    EXPECT_THAT(refused(R"({"role": "user", "content": [)" + std::string(part) + "]}"),
                AllOf(HasSubstr("p.jsonl row 1"), HasSubstr("leave out images")));
  }
  EXPECT_THAT(refusal(R"({"prompt": [{"role": "user", "content": "a"}], "tools": {"a": 1}})"),
              HasSubstr("tools must be a list"));
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
