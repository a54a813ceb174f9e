// What commands do with tensors. The program that users start links no PyTorch, so that planning
// and help start at once; it leaves this to the program beside it, nereus-runtime (hand_over.h),
// which does it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "nereus/app/config/config.h"
#include "nereus/core/job/job.h"

namespace nereus {

struct DeviceCommands {
  // Runs the job; returns the exit code.
  std::function<int(const Config&)> train;
  // What was found fine, one line each; throws Error for what is not.
  std::function<std::vector<std::string>(const Config&)> check;
  // Writes a run's newest actor into a directory; says which.
  std::function<std::string(const std::filesystem::path& run, const std::filesystem::path& output)>
      export_run;
  // Executes a transition on virtual devices of this machine, with random state.
  std::function<TransitionReport(const TransitionDag&, const JobSpec&, const Cluster&)>
      try_transition;
};

}  // namespace nereus
