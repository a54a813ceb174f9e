// From the program without PyTorch to the one with it.
#pragma once

#include <filesystem>

#include "nereus/app/cli/device_commands.h"

namespace nereus {

// The program beside this one, "nereus-runtime" in the same directory.
std::filesystem::path runtime_program();

// Each command replaces this process by `program` with the same arguments, which does it all: the
// process id, the terminal and the working directory stay, so that whoever sends signals or waits
// notices nothing. `argv` must outlive the commands. They return only by throwing Error(kIo), which
// names the program, if it cannot be started.
DeviceCommands handed_over(const std::filesystem::path& program, const char* const* argv);

}  // namespace nereus
