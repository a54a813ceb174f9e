// What a machine's limits have to do with an error.
#pragma once

#include <exception>
#include <string>

namespace nereus {

// What the error says, in words that name what was wanted, and, if it is of the kind that a limit
// on threads, memory or open files leads to, what those limits are now and how they are set.
std::string with_limits(const std::exception& error);

}  // namespace nereus
