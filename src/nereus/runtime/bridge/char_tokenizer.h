// verl's character tokenizer, that of the digit-completion task.
#pragma once

#include "nereus/core/base/json.h"
#include "nereus/runtime/bridge/tokenizer.h"

namespace nereus {

// Ids: 0 separator "S", 1 end "E", 2 padding "P", 3 unknown "U", then one per character of
// "char_ords". `encode` with add_special appends the separator, as verl's chat template does for a
// user's message, the only one it takes: so there is no encode_chat(). `decode` leaves out the end
// token only. The other special tokens show as their letters, so that text stays aligned with
// tokens, one character each: what a dense reward needs.
class CharTokenizer final : public Tokenizer {
 public:
  // `config` is a tokenizer_config.json. Throws Error(kInvalidInput) naming `where` unless
  // char_ords are different ASCII codes.
  CharTokenizer(const Json& config, const std::string& where);

  std::vector<int64_t> encode(const std::string& text, bool add_special) const override;
  std::string decode(std::span<const int64_t> tokens) const override;
  std::vector<std::string> decode_batch(
      const std::vector<std::vector<int64_t>>& batch) const override;
  std::vector<int64_t> missing_ids(int64_t count) const override;

 private:
  std::string alphabet_;  // id → character
};

}  // namespace nereus
