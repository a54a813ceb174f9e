#include "nereus/runtime/files/model_config.h"

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, path.string() + ": " + what);
}

// What generation_config.json says of the end of a response: empty if nothing.
std::vector<int64_t> generation_eos(const std::filesystem::path& file, int64_t vocab_size) {
  if (!std::filesystem::exists(file)) return {};
  const Json config = parse_json(read_text(file), file.string());
  if (!config.is_object()) refuse(file, "must hold a JSON object, not " + shown_json(config));
  const Json value = optional(config, "eos_token_id", Json::array(), file.string());
  std::vector<int64_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    // As unsigned, so that neither a negative nor a huge number becomes an id.
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      refuse(file, "eos_token_id is " + shown_json(value) +
                       "; it must be a token id or a list of them, " +
                       "each a whole number below config.json's vocab_size of " +
                       std::to_string(vocab_size));
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

}  // namespace

ModelSpec read_model_spec(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "config.json";
  ModelSpec spec = parse_model_config(parse_json(read_text(file), file.string()), file.string());
  const std::vector<int64_t> eos = generation_eos(directory / kGenerationConfig, spec.vocab_size);
  if (!eos.empty()) spec.eos_token_ids = eos;
  return spec;
}

}  // namespace nereus
