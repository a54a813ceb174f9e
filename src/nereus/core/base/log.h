// Logging for people. One .cpp includes spdlog; nobody else does.
#pragma once

#include <string>

namespace nereus::log {

// To stderr, thread-safe, one line each.
void info(const std::string& message);
void warn(const std::string& message);
void error(const std::string& message);
// Only warnings and errors from now on (quiet = true).
void set_quiet(bool quiet);

}  // namespace nereus::log
