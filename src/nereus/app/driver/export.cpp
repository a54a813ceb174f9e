#include "nereus/app/driver/export.h"

#include <utility>

#include "nereus/app/config/config.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"
#include "nereus/runtime/data/checkpoint.h"
#include "nereus/runtime/data/hf_model.h"

namespace nereus {

std::string export_run(const std::filesystem::path& run, const std::filesystem::path& output) {
  const auto [checkpoint, damaged] = search_checkpoints(run / "checkpoints");
  for (const std::string& reason : damaged) log::warn("skipped a newer checkpoint: " + reason);
  if (!checkpoint) {
    throw Error(ErrorCode::kInvalidInput, run.string() + " has no complete checkpoint");
  }
  const Config config = load_config(run / "config.yaml");
  const std::string prefix = "weights/";
  TensorMap weights;
  for (auto& [name, tensor] : read_part(*checkpoint, "actor")) {
    if (name.starts_with(prefix)) weights[name.substr(prefix.size())] = tensor;
  }
  const std::filesystem::path directory = output.empty() ? run / "hf" : output;
  write_model(directory, read_model_spec(config.model.path), parse_dtype(config.dtype), weights,
              {.tokenizer = config.data.tokenizer, .model = config.model.path});
  return "The actor after step " + std::to_string(checkpoint->step) + ": " + directory.string();
}

}  // namespace nereus
