#include "nereus/app/config/config.h"

#include <iostream>

#include "nereus/app/cli/commands.h"
#include "nereus/core/base/error.h"

namespace nereus {

void add_config(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "config", "Print a config with every option resolved, or the reference page");
  command->footer("Example:  ./nereus config examples/quickstart.yaml");
  auto arguments = add_config_arguments(*command);
  command->get_option("config")->required(false);
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "Print docs/config.md");
  command->callback([=, &action] {
    action = [=] {
      if (!*markdown && arguments->file.empty()) {
        throw Error(ErrorCode::kInvalidInput, "name a config file, or --markdown");
      }
      std::cout << (*markdown ? config_reference() : to_yaml(arguments->load()));
      return 0;
    };
  });
}

}  // namespace nereus
