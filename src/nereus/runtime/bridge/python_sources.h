// Python that runs in a PythonWorkers: values of PythonWorkersOptions::source.
#pragma once

#include <string>

namespace nereus {

// Arguments {"file", "function", "source"}: a user's reward (workers/custom_reward.py). Each call
// takes the function's keyword arguments and gives {"score", "extra"}.
std::string custom_reward_source();

}  // namespace nereus
