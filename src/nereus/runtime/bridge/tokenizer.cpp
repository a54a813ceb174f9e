#include "nereus/runtime/bridge/tokenizer.h"

#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/base/json.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/bridge/char_tokenizer.h"
#include "nereus/runtime/bridge/hf_tokenizer.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/regular_file.h"

namespace nereus {

namespace {

// For models that are given by their shape alone.
class NoTokenizer final : public Tokenizer {
 public:
  explicit NoTokenizer(std::string directory) : directory_(std::move(directory)) {}

  std::vector<int64_t> encode(const std::string& text, bool) const override {
    throw Error(ErrorCode::kInvalidInput,
                directory_ + " has no tokenizer.json (or tokenizer_config.json with " +
                    "\"char_ords\") for the text \"" + text.substr(0, 40) +
                    "\": give data.tokenizer, or tokens as \"prompt_ids\"");
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::vector<std::string> ids;
    for (const int64_t token : tokens) ids.push_back(std::to_string(token));
    return join(ids, " ");
  }
  std::vector<std::string> decode_batch(
      const std::vector<std::vector<int64_t>>& batch) const override {
    std::vector<std::string> texts;
    for (const std::vector<int64_t>& tokens : batch) texts.push_back(decode(tokens));
    return texts;
  }

 private:
  std::string directory_;
};

}  // namespace

std::optional<EncodedChats> Tokenizer::encode_chats(const std::vector<std::string>&) const {
  return std::nullopt;
}

std::vector<int64_t> Tokenizer::missing_ids(int64_t) const { return {}; }

std::unique_ptr<Tokenizer> Tokenizer::open(const std::filesystem::path& directory) {
  // Python opens some of them: it would wait for a pipe as well.
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model"}) {
    if (std::filesystem::exists(directory / name)) require_regular_file(directory / name);
  }
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"}) {
    if (std::filesystem::exists(directory / name)) return open_hf_tokenizer(directory);
  }

  const auto config_file = directory / "tokenizer_config.json";
  if (std::filesystem::exists(config_file)) {
    const Json config = parse_json(read_text(config_file), config_file.string());
    if (config.contains("char_ords")) {
      return std::make_unique<CharTokenizer>(config, config_file.string());
    }
  }
  return std::make_unique<NoTokenizer>(directory.string());
}

}  // namespace nereus
