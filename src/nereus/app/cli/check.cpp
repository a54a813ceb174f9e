#include <iostream>

#include "nereus/app/cli/commands.h"

namespace nereus {

void add_check(CLI::App& app, const DeviceCommands& devices, Action& action) {
  CLI::App* command =
      app.add_subcommand("check", "Find out what can be known before a device is touched");
  command->footer("Example:  ./nereus check examples/quickstart.yaml");
  auto arguments = add_config_arguments(*command);
  command->callback([=, &devices, &action] {
    action = [=, &devices] {
      for (const std::string& line : devices.check(arguments->load())) {
        std::cout << (line.starts_with("warning") ? "" : "ok  ") << line << "\n";
      }
      return 0;
    };
  });
}

}  // namespace nereus
