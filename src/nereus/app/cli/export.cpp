#include <iostream>
#include <string>

#include "nereus/app/cli/commands.h"

namespace nereus {

void add_export(CLI::App& app, const DeviceCommands& devices, Action& action) {
  CLI::App* command =
      app.add_subcommand("export", "Write a run's newest actor as a Hugging Face model");
  command->footer("Example:  ./nereus export runs/quickstart --output my-model");
  auto run = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  command->add_option("run", *run, "Run directory")->required();
  command->add_option("--output", *output, "Where to; RUN/hf if not given");
  command->callback([=, &devices, &action] {
    action = [=, &devices] {
      std::cout << devices.export_run(*run, *output) << "\n";
      return 0;
    };
  });
}

}  // namespace nereus
