#include "nereus/bridge/tokenizer.h"

#include <fstream>
#include <iterator>

#include "nereus/base/error.h"
#include "nereus/base/json.h"
#include "nereus/bridge/char_tokenizer.h"
#include "nereus/bridge/hf_tokenizer.h"

namespace nereus {

std::unique_ptr<Tokenizer> Tokenizer::open(const std::filesystem::path& directory) {
  const auto tokenizer_json = directory / "tokenizer.json";
  if (std::filesystem::exists(tokenizer_json)) return open_hf_tokenizer(tokenizer_json);

  const auto config_file = directory / "tokenizer_config.json";
  if (std::ifstream stream(config_file, std::ios::binary); stream) {
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    const Json config = parse_json(text, config_file.string());
    if (config.contains("char_ords")) {
      return std::make_unique<CharTokenizer>(config, config_file.string());
    }
  }
  throw Error(
      ErrorCode::kInvalidInput,
      directory.string() + ": no tokenizer.json, and no tokenizer_config.json with \"char_ords\"");
}

}  // namespace nereus
