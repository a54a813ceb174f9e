// Text ↔ token ids through the field's own library (Hugging Face tokenizers in embedded Python).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace nereus {

struct EncodedChats {
  std::vector<std::vector<int64_t>> tokens;  // of the conversations before the first that has none
  std::string failure;                       // why it has none; empty: all have
};

// The interpreter is started on first use and lives until the process ends. All methods take the
// GIL themselves and may be called from any thread.
class Tokenizer {
 public:
  // `directory` holds a tokenizer that transformers reads (tokenizer.json, or vocab.json with
  // merges.txt, or tokenizer.model), or a tokenizer_config.json with "char_ords" (verl's character
  // tokenizer of the digit task), or neither: then there is no text, encode() throws, and decode()
  // writes token ids ("17 4 250"). Throws Error(kInvalidInput) naming the path.
  static std::unique_ptr<Tokenizer> open(const std::filesystem::path& directory);
  virtual ~Tokenizer() = default;

  // Special tokens as the tokenizer's post-processor adds them if add_special; but a text that
  // begins with those that come first, such as the mark of a text's beginning, gets them once.
  virtual std::vector<int64_t> encode(const std::string& text, bool add_special) const = 0;
  // Conversations as the tokenizer's chat template writes them, up to where the assistant's next
  // message begins (transformers' add_generation_prompt). Each is a list of {"role", "content", …}
  // as JSON, or an object with it as "messages", with "tools" and with "chat_template_kwargs",
  // further names for the template. Contents may be lists of {"type": "text", "text"}: a template
  // that knows no such lists gets their texts, joined by newlines. No value: the tokenizer has no
  // chat template (chat_template.jinja, or "chat_template" in tokenizer_config.json). Throws
  // Error(kInvalidInput) naming the directory for a template that cannot be read; that it refuses a
  // conversation, or takes too much for it (render_chats()), is EncodedChats::failure. Starts a
  // process: give all conversations at once.
  virtual std::optional<EncodedChats> encode_chats(
      const std::vector<std::string>& conversations) const;
  // Special tokens are left out (the character tokenizer leaves out its end token only).
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;
  // Many at once: one crossing of the language border.
  virtual std::vector<std::string> decode_batch(
      const std::vector<std::vector<int64_t>>& batch) const = 0;
  // Those of the ids [0, count) that are no token's, ascending: rows that fill up a model's
  // vocabulary. Without a tokenizer every id is a token.
  virtual std::vector<int64_t> missing_ids(int64_t count) const;
};

}  // namespace nereus
