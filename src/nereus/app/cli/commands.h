// One function per command: declares its arguments, and sets `action` to what it does if it is the
// one chosen. `devices` must outlive the action.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nereus/app/cli/device_commands.h"
#include "nereus/app/config/config.h"

namespace nereus {

// Runs the chosen command; returns the exit code. May throw Error.
using Action = std::function<int()>;

void add_train(CLI::App& app, const DeviceCommands& devices, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_check(CLI::App& app, const DeviceCommands& devices, Action& action);
void add_transition(CLI::App& app, const DeviceCommands& devices, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_export(CLI::App& app, const DeviceCommands& devices, Action& action);
void add_config(CLI::App& app, Action& action);

// A config file and the overrides after it, as most commands take them.
struct ConfigArguments {
  std::string file;
  std::vector<std::string> overrides;
  Config load() const { return load_config(file, overrides); }
};
std::shared_ptr<ConfigArguments> add_config_arguments(CLI::App& command);

}  // namespace nereus
