#include "nereus/app/cli/commands.h"
#include "nereus/core/base/error.h"

namespace nereus {

std::shared_ptr<ConfigArguments> add_config_arguments(CLI::App& command) {
  auto arguments = std::make_shared<ConfigArguments>();
  command.add_option("config", arguments->file, "YAML file; docs/config.md lists its keys")
      ->required();
  command.add_option("overrides", arguments->overrides, "key=value …, e.g. trainer.seed=2");
  return arguments;
}

void add_train(CLI::App& app, const DeviceCommands& devices, Action& action) {
  CLI::App* command = app.add_subcommand("train", "Run an RL job, adapting its plan on the way");
  command->footer(
      "Example:  ./nereus train examples/quickstart.yaml trainer.seed=2\n"
      "          ./nereus train examples/arithmetic.yaml --devices cuda:0,1\n"
      "Ctrl-C (or SIGTERM, SIGHUP) saves the state of the last step within seconds; the same "
      "command with\n--resume goes on, and every result is as if nothing had happened. Exit code: "
      "0 "
      "after the last step,\n130 (143, 129) if stopped so, 3 if no plan fits the devices.");
  auto arguments = add_config_arguments(*command);
  auto resume = std::make_shared<bool>(false);
  auto directory = std::make_shared<std::string>();
  auto device = std::make_shared<std::string>();
  command->add_option("--devices", *device,
                      "cpu, cuda (all GPUs) or cuda:0,1; instead of the configured ones");
  command->add_flag("--resume", *resume, "Go on from the newest checkpoint of the run directory");
  command->add_option("--run-dir", *directory, "Same as trainer.default_local_dir=…")
      ->check([](const std::string& path) {
        return std::string(path.empty() ? "is empty: give a directory, or leave it out" : "");
      });
  command->callback([=, &devices, &action] {
    action = [=, &devices] {
      if (!device->empty()) {
        arguments->overrides.push_back("cluster.device=" + *device);
        if (*device != "cpu") arguments->overrides.emplace_back("cluster.devices=0");
      }
      Config config = arguments->load();
      if (!directory->empty()) config.trainer.default_local_dir = *directory;
      if (*resume) config.trainer.resume_mode = "auto";
      return devices.train(config);
    };
  });
}

}  // namespace nereus
