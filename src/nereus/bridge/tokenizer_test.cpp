#include "nereus/bridge/tokenizer.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "nereus/base/error.h"
#include "nereus/bridge/char_tokenizer.h"

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

TEST(CharTokenizer, DigitTaskAsInVerl) {
  const auto tokenizer = Tokenizer::open(kAssets / "digits");
  EXPECT_THAT(tokenizer->encode("09,:x", false), ElementsAre(4, 13, 14, 15, 3));
  EXPECT_THAT(tokenizer->encode("7", true), ElementsAre(11, 0));
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{4, 14, 0, 5, 1}), "0,S1");
  EXPECT_THAT(tokenizer->decode_batch({{4}, {1}}), ElementsAre("0", ""));
  EXPECT_THAT(refusal([&] { tokenizer->decode(std::vector<int64_t>{16}); }), HasSubstr("16"));
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
}

}  // namespace
}  // namespace nereus
