// The embedded Python interpreter.
#pragma once

#include <string>

namespace nereus {

// The environment variable NEREUS_PYTHON, or the interpreter found at build time.
std::string python_interpreter();

// Starts the interpreter once per process, with the virtual environment of python_interpreter(),
// without signal handlers, and leaves the GIL free. Does nothing inside a process that is Python
// already. Thread-safe. Throws Error(kInvalidInput) naming the interpreter if it does not start.
void start_python();

}  // namespace nereus
