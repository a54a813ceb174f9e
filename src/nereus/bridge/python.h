// The embedded Python interpreter.
#pragma once

namespace nereus {

// Starts the interpreter once per process, with the virtual environment of the interpreter named by
// the environment variable NEREUS_PYTHON (default: the one found at build time), without signal
// handlers, and leaves the GIL free. Does nothing inside a process that is Python already.
// Thread-safe. Throws Error(kInvalidInput) naming the interpreter if it does not start.
void start_python();

}  // namespace nereus
