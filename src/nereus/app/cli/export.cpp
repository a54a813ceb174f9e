#include <iostream>
#include <string>
#include <utility>

#include "nereus/app/cli/commands.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"
#include "nereus/runtime/data/checkpoint.h"
#include "nereus/runtime/data/hf_model.h"

namespace nereus {

namespace {

int export_model(const std::filesystem::path& run, std::filesystem::path output) {
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
  if (output.empty()) output = run / "hf";
  write_model(output, read_model_spec(config.model.path), parse_dtype(config.dtype), weights,
              {.tokenizer = config.data.tokenizer, .model = config.model.path});
  std::cout << "The actor after step " << checkpoint->step << ": " << output.string() << "\n";
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("export", "Write a run's newest actor as a Hugging Face model");
  command->footer("Example:  ./nereus export runs/quickstart --output my-model");
  auto run = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  command->add_option("run", *run, "Run directory")->required();
  command->add_option("--output", *output, "Where to; RUN/hf if not given");
  command->callback([=, &action] { action = [=] { return export_model(*run, *output); }; });
}

}  // namespace nereus
