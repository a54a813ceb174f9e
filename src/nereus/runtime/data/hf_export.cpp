// write_model(): a directory that transformers loads.
#include <cstdio>
#include <optional>
#include <system_error>

#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Tokenizer files as transformers names them.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja"};

// The model's tensors in file dtype, distributed over as many shards as the limit asks for.
std::vector<TensorMap> shard_tensors(const ModelSpec& spec, DType dtype,
                                     const TensorMap& tensors_by_name, int64_t max_shard) {
  std::vector<TensorMap> shards(1);
  int64_t shard_bytes = 0;
  for (const TensorSpec& tensor : tensors(spec)) {
    const auto entry = tensors_by_name.find(tensor.name);
    NEREUS_CHECK(entry != tensors_by_name.end(), "write_model: no tensor " + tensor.name);
    NEREUS_CHECK(entry->second.sizes() == at::IntArrayRef(tensor.shape),
                 "write_model: wrong shape of " + tensor.name);
    const int64_t bytes = element_count(tensor) * size_of(dtype).count();
    if (shard_bytes > 0 && shard_bytes + bytes > max_shard) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back()[tensor.name] = entry->second.detach().to(at::kCPU, scalar_type(dtype));
    shard_bytes += bytes;
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

void write_weights(const fs::path& directory, const std::vector<TensorMap>& shards) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};  // transformers wants it
  // A reader must not mix this export with an earlier one in the other form.
  fs::remove(directory / kSingleFile);
  fs::remove(directory / kIndexFile);
  if (shards.size() == 1) {
    write_safetensors(directory / kSingleFile, shards.front(), metadata);
    return;
  }
  Json weight_map = Json::object();
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_safetensors(directory / name, shards[i], metadata);
    for (const auto& [tensor_name, tensor] : shards[i]) {
      weight_map[tensor_name] = name;
      total += tensor.nbytes();
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_text(directory / kIndexFile, index.dump(2) + "\n");
}

// Whether a file of a model's directory is its own: not a link to somewhere else. In Hugging Face's
// cache, the files of models--X/snapshots/REVISION are links to models--X/blobs.
bool is_own_file(const fs::path& file) {
  std::error_code failed;
  const fs::path directory = fs::canonical(file.parent_path(), failed);
  const fs::path target = fs::canonical(file, failed);
  if (failed) return false;
  const auto lies_in = [&target](const fs::path& folder) {
    return target.string().starts_with(folder.string() + "/");
  };
  const bool is_snapshot = directory.parent_path().filename() == "snapshots";
  return lies_in(directory) ||
         (is_snapshot && lies_in(directory.parent_path().parent_path() / "blobs"));
}

// The file's text; nothing, with a warning, if it is not to be copied or cannot be: a trained model
// is exported without it rather than not at all.
std::optional<std::string> copied_text(const fs::path& file) {
  if (!fs::exists(file)) return std::nullopt;
  if (!is_own_file(file)) {
    log::warn(
        "the export has no " + file.filename().string() + ": " + file.string() +
        " is a link that leads out of its directory; copy it yourself if it may be passed on");
    return std::nullopt;
  }
  try {
    constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // vocabularies are larger than configs
    return read_text(file, kMostBytes);
  } catch (const Error& error) {
    log::warn("the export has no " + file.filename().string() + ": " + error.what());
    return std::nullopt;
  }
}

std::string generation_config(const fs::path& source, const Json& config) {
  if (!source.empty()) {
    if (auto text = copied_text(source / kGenerationConfig)) return *std::move(text);
  }
  Json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  return generation.dump(2) + "\n";
}

}  // namespace

void write_model(const fs::path& directory, const ModelSpec& spec, DType dtype,
                 const TensorMap& tensors_by_name, const ExportSources& from, Bytes max_shard) {
  write_weights(directory, shard_tensors(spec, dtype, tensors_by_name, max_shard.count()));
  if (!from.tokenizer.empty()) {
    for (const char* name : kTokenizerFiles) {
      if (const auto text = copied_text(from.tokenizer / name)) write_text(directory / name, *text);
    }
  }
  const Json config = to_hf_config(spec, dtype);
  write_text(directory / kGenerationConfig, generation_config(from.model, config));
  write_text(directory / "config.json", config.dump(2) + "\n");
}

}  // namespace nereus
