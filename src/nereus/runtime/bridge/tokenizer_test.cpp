#include "nereus/runtime/bridge/tokenizer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "nereus/core/base/error.h"
#include "nereus/runtime/bridge/char_tokenizer.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kAssets = std::filesystem::path(NEREUS_SOURCE_DIR) / "assets";

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kInvalidInput));
    return error.what();
  }
  return "no error";
}

TEST(HfTokenizer, StoriesAsLlama2c) {
  const auto tokenizer = Tokenizer::open(kAssets / "stories260K");
  EXPECT_THAT(tokenizer->encode("Once upon a time", true), ElementsAre(1, 403, 407, 261, 378));
  EXPECT_THAT(tokenizer->encode("Once upon a time", false), ElementsAre(403, 407, 261, 378));
}

// Also of those that only Python opens, which would wait for a pipe for ever.
TEST(HfTokenizer, OnlyRegularFilesAreOpened) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "tokenizer_of_no_files";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "chat_template.jinja"}) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    if (std::string(name) != "tokenizer.json") {
      std::filesystem::copy(kAssets / "stories260K/tokenizer.json", folder);
    }
    std::filesystem::create_directory(folder / name);
    EXPECT_THAT(
        refusal([&] { Tokenizer::open(folder); }),
        AllOf(HasSubstr("cannot read " + (folder / name).string()), HasSubstr("a directory")));
  }
}

TEST(HfTokenizer, TheMarkOfTheBeginningComesOnce) {
  const auto tokenizer = Tokenizer::open(kAssets / "stories260K");
  EXPECT_EQ(tokenizer->encode("<s>Once upon a time", true),
            tokenizer->encode("<s>Once upon a time", false));
  EXPECT_THAT(tokenizer->encode("<s>", true), ElementsAre(1));
  EXPECT_THAT(tokenizer->encode("", true), ElementsAre(1));
  EXPECT_THAT(tokenizer->encode("<s><s>", true), ElementsAre(1, 1));  // as the text wants it
}

TEST(HfTokenizer, IdsThatAreNoTokens) {
  const auto tokenizer = Tokenizer::open(kAssets / "stories260K");
  EXPECT_THAT(tokenizer->missing_ids(515), ElementsAre(512, 513, 514));
  EXPECT_THAT(tokenizer->missing_ids(100), ElementsAre());  // a model may know fewer
}

TEST(HfTokenizer, DecodeLeavesOutSpecialTokens) {
  const auto tokenizer = Tokenizer::open(kAssets / "stories260K");
  const std::vector<int64_t> tokens = {1, 403, 407, 261, 378, 2};
  EXPECT_EQ(tokenizer->decode(tokens), "Once upon a time");
  EXPECT_THAT(tokenizer->decode_batch({tokens, {}, {403}}),
              ElementsAre("Once upon a time", "", "Once"));
  const std::string text = "Zürich — \"5 €\"\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, true)), text);
}

TEST(HfTokenizer, AnyThreadMayCall) {
  const auto tokenizer = Tokenizer::open(kAssets / "stories260K");
  std::vector<std::thread> threads;
  std::vector<size_t> lengths(4);
  for (size_t i = 0; i < lengths.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 50; ++repeat) {
        lengths[i] += tokenizer->encode("Once upon a time", false).size();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(lengths, ::testing::Each(200));
}

TEST(HfTokenizer, BadFileAndBadTextAreNamed) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "nereus_bridge_bad";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "tokenizer.json") << "{}";
  EXPECT_THAT(refusal([&] { Tokenizer::open(directory); }), HasSubstr("tokenizer.json"));
  const auto tokenizer = Tokenizer::open(kAssets / "stories260K");
  EXPECT_THAT(refusal([&] { tokenizer->encode("\xff", true); }), HasSubstr("utf-8"));
}

// Of one conversation; no value without a template. Throws the reason if there is no text.
std::optional<std::vector<int64_t>> encode_chat(const Tokenizer& tokenizer,
                                                const std::string& messages) {
  const auto chats = tokenizer.encode_chats({messages});
  if (!chats) return std::nullopt;
  if (!chats->failure.empty()) throw Error(ErrorCode::kInvalidInput, chats->failure);
  return chats->tokens.at(0);
}

constexpr const char* kConversation =
    R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Once"},)"
    R"({"role":"assistant","content":"upon"},{"role":"user","content":"a time"}])";
// As a text: what kConversation is under the template below.
constexpr const char* kRendered =
    "<s>system: Be brief.</s>user: Once</s>assistant: upon</s>user: a time</s>assistant:";
constexpr const char* kTemplate =
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

// The stories' tokenizer with other files beside it.
std::filesystem::path stories_with(const std::vector<std::pair<const char*, std::string>>& files) {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto directory = std::filesystem::path(::testing::TempDir()) / "nereus_bridge" / test;
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::filesystem::copy(kAssets / "stories260K/tokenizer.json", directory);
  for (const auto& [name, text] : files) std::ofstream(directory / name) << text;
  return directory;
}

std::string config_with(const Json& chat_template) {
  return Json({{"bos_token", "<s>"},
               {"eos_token", {{"content", "</s>"}}},
               {"pad_token", nullptr},
               {"chat_template", chat_template}})
      .dump();
}

TEST(ChatTemplate, FromTokenizerConfig) {
  const auto tokenizer =
      Tokenizer::open(stories_with({{"tokenizer_config.json", config_with(kTemplate)}}));
  const auto tokens = encode_chat(*tokenizer, kConversation).value();
  EXPECT_EQ(tokens, tokenizer->encode(kRendered, /*add_special=*/false));
  EXPECT_EQ(std::ranges::count(tokens, 1), 1);  // <s>, which add_special would write once more
  EXPECT_EQ(std::ranges::count(tokens, 2), 4);  // </s>
}

TEST(ChatTemplate, AFileOfItsOwnComesFirst) {
  const auto tokenizer = Tokenizer::open(stories_with(
      {{"tokenizer_config.json", config_with("no")}, {"chat_template.jinja", kTemplate}}));
  EXPECT_EQ(encode_chat(*tokenizer, kConversation), tokenizer->encode(kRendered, false));
}

TEST(ChatTemplate, TheDefaultOfSeveral) {
  const Json several = {{{"name", "tool_use"}, {"template", "no"}},
                        {{"name", "default"}, {"template", kTemplate}}};
  const auto tokenizer =
      Tokenizer::open(stories_with({{"tokenizer_config.json", config_with(several)}}));
  EXPECT_EQ(encode_chat(*tokenizer, kConversation), tokenizer->encode(kRendered, false));
}

TEST(ChatTemplate, NoneThere) {
  for (const char* directory : {"stories260K", "digits", "prompts"}) {
    EXPECT_EQ(encode_chat(*Tokenizer::open(kAssets / directory), kConversation), std::nullopt);
  }
}

TEST(ChatTemplate, RefusalsNameTheDirectory) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {"{{ raise_exception('system role not supported') }}", "system role not supported"},
      {"{% for %}", "TemplateSyntaxError"},
      {"{{ messages.append(1) }}", "SecurityError"},
      {"{{ messages.__class__.__mro__ }}", "SecurityError"},
      {"{% set ns = namespace(_x=1) %}", "SecurityError"},
      {5, "must be a text, not 5"}};
  for (const auto& [chat_template, reason] : cases) {
    const auto directory = stories_with({{"tokenizer_config.json", config_with(chat_template)}});
    const auto tokenizer = Tokenizer::open(directory);
    EXPECT_THAT(refusal([&] { encode_chat(*tokenizer, kConversation); }),
                AllOf(HasSubstr("chat template of " + directory.string()), HasSubstr(reason)));
  }
}

// Templates that sandboxes let through: they would take hours, or all memory.
TEST(ChatTemplate, TakesNoMoreThanItMay) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}x",
       "longer than 10 s"},
      {"{{ 'a' * 10**10 }}", "it may take 1.00 GiB"},
      {"{{ [1] | batch(10**9, 0) | list | length }}", "it may take 1.00 GiB"},
      {"{{ 'a' * (17 * 2**20) }}", "at most 16777216"}};
  for (const auto& [chat_template, reason] : cases) {
    const auto directory = stories_with({{"tokenizer_config.json", config_with(chat_template)}});
    EXPECT_THAT(refusal([&] { encode_chat(*Tokenizer::open(directory), kConversation); }),
                AllOf(HasSubstr("chat template of " + directory.string()), HasSubstr(reason)));
  }
}

TEST(ChatTemplate, ManyConversationsUpToTheFirstThatIsRefused) {
  const auto tokenizer = Tokenizer::open(stories_with(
      {{"tokenizer_config.json",
        config_with("{% if messages[0].content == '150' %}{{ raise_exception('no') }}{% endif %}"
                    "{{ messages[0].content }}")}}));
  std::vector<std::string> conversations;
  for (int i = 0; i < 200; ++i) {
    conversations.push_back(R"([{"role":"user","content":")" + std::to_string(i) + "\"}]");
  }
  const EncodedChats chats = tokenizer->encode_chats(conversations).value();
  ASSERT_EQ(chats.tokens.size(), 150);
  EXPECT_THAT(chats.failure, HasSubstr("TemplateError: no"));
  for (int i = 0; i < 150; ++i) {
    EXPECT_EQ(chats.tokens[i], tokenizer->encode(std::to_string(i), false));
  }
}

TEST(CharTokenizer, DigitTaskAsInVerl) {
  const auto tokenizer = Tokenizer::open(kAssets / "digits");
  EXPECT_THAT(tokenizer->encode("09,:x", false), ElementsAre(4, 13, 14, 15, 3));
  EXPECT_THAT(tokenizer->encode("7", true), ElementsAre(11, 0));
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{4, 14, 0, 5, 1}), "0,S1");
  EXPECT_THAT(tokenizer->decode_batch({{4}, {1}}), ElementsAre("0", ""));
  EXPECT_THAT(refusal([&] { tokenizer->decode(std::vector<int64_t>{16}); }), HasSubstr("16"));
  EXPECT_THAT(tokenizer->missing_ids(18), ElementsAre(16, 17));
}

TEST(CharTokenizer, BadAlphabetsAreRefused) {
  for (const Json& ords : {Json{48, 48}, Json{200}, Json{'E'}, Json("0123")}) {
    EXPECT_THAT(refusal([&] { CharTokenizer({{"char_ords", ords}}, "here"); }),
                HasSubstr("char_ords"));
  }
}

TEST(Tokenizer, WithoutFilesThereIsNoText) {
  const auto tokenizer = Tokenizer::open(kAssets / "prompts");
  EXPECT_THAT(refusal([&] { tokenizer->encode("Once", true); }),
              AllOf(HasSubstr("prompts has no tokenizer.json"), HasSubstr("\"Once\""),
                    HasSubstr("prompt_ids")));
  EXPECT_THAT(tokenizer->decode_batch({{17, 4, 250}, {}}), ElementsAre("17 4 250", ""));
  EXPECT_THAT(tokenizer->missing_ids(300), ElementsAre());
}

}  // namespace
}  // namespace nereus
