// The command line: reads it, runs one command, turns errors into messages and exit codes.
#pragma once

#include "nereus/app/cli/device_commands.h"

namespace nereus {

// Exit codes: 0 done (also when stopped by a signal, after saving), 2 invalid input, 3 no plan
// fits, 1 anything else. Results go to stdout, errors ("error: …") to stderr. Never throws.
int run_command_line(int argc, const char* const* argv, const DeviceCommands& devices);

}  // namespace nereus
