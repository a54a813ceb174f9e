#include <Python.h>

#include "nereus/runtime/bridge/python.h"

#include <cstdlib>
#include <mutex>
#include <string>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

PyStatus initialize(PyConfig& config, const std::string& interpreter) {
  // Ctrl-C belongs to the job, which saves before it stops.
  config.install_signal_handlers = 0;
  config.parse_argv = 0;
  for (wchar_t** name : {&config.program_name, &config.executable}) {
    const PyStatus status = PyConfig_SetBytesString(&config, name, interpreter.c_str());
    if (PyStatus_Exception(status)) return status;
  }
  return Py_InitializeFromConfig(&config);
}

void start() {
  if (Py_IsInitialized()) return;
  const std::string interpreter = python_interpreter();
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  const PyStatus status = initialize(config, interpreter);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) {
    throw Error(ErrorCode::kInvalidInput,
                "Python interpreter " + interpreter + " does not start: " +
                    (status.err_msg != nullptr ? status.err_msg : "unknown error") +
                    "; set NEREUS_PYTHON to the python of a working virtual environment");
  }
  PyEval_SaveThread();
}

}  // namespace

std::string python_interpreter() {
  const char* chosen = std::getenv("NEREUS_PYTHON");
  return chosen != nullptr && *chosen != '\0' ? chosen : NEREUS_PYTHON;
}

void start_python() {
  static std::once_flag once;
  std::call_once(once, start);
}

}  // namespace nereus
