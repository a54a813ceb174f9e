#include "nereus/runtime/bridge/char_tokenizer.h"

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

constexpr const char* kSpecialLetters = "SEPU";
constexpr int64_t kSeparator = 0;
constexpr int64_t kEnd = 1;
constexpr int64_t kUnknown = 3;
constexpr int kAsciiCodes = 128;

}  // namespace

CharTokenizer::CharTokenizer(const Json& config, const std::string& where)
    : alphabet_(kSpecialLetters) {
  for (const int code : require<std::vector<int>>(config, "char_ords", where)) {
    if (code < 1 || code >= kAsciiCodes ||
        alphabet_.find(static_cast<char>(code)) != std::string::npos) {
      throw Error(ErrorCode::kInvalidInput,
                  where + ": char_ords has " + std::to_string(code) +
                      "; entries must be ASCII codes, none twice, none of the letters S, E, P, U");
    }
    alphabet_ += static_cast<char>(code);
  }
}

std::vector<int64_t> CharTokenizer::encode(const std::string& text, bool add_special) const {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size() + 1);
  for (const char character : text) {
    const auto id = alphabet_.find(character);
    tokens.push_back(id == std::string::npos ? kUnknown : static_cast<int64_t>(id));
  }
  if (add_special) tokens.push_back(kSeparator);
  return tokens;
}

std::string CharTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (const int64_t token : tokens) {
    if (token < 0 || token >= std::ssize(alphabet_)) {
      throw Error(ErrorCode::kInvalidInput, "token " + std::to_string(token) +
                                                " is outside the vocabulary of " +
                                                std::to_string(alphabet_.size()));
    }
    if (token != kEnd) text += alphabet_[static_cast<size_t>(token)];
  }
  return text;
}

std::vector<std::string> CharTokenizer::decode_batch(
    const std::vector<std::vector<int64_t>>& batch) const {
  std::vector<std::string> texts;
  texts.reserve(batch.size());
  for (const auto& tokens : batch) texts.push_back(decode(tokens));
  return texts;
}

std::vector<int64_t> CharTokenizer::missing_ids(int64_t count) const {
  std::vector<int64_t> missing;
  for (int64_t id = std::ssize(alphabet_); id < count; ++id) missing.push_back(id);
  return missing;
}

}  // namespace nereus
