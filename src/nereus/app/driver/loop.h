// The heart of Nereus: one loop for every kind of job.
#pragma once

#include <atomic>

#include "nereus/core/controller/controller.h"
#include "nereus/core/job/job.h"

namespace nereus {

// Who keeps the record while the loop runs.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void write(const StepReport& report, const Decision& decision) = 0;
  // The transition of an admitted decision was executed, or failed.
  virtual void write(int step, const Decision& decision, const TransitionReport& report) = 0;
  // How the job goes on after a transition that failed.
  virtual void write(int step, const Decision& recovery) = 0;
  // The job is between two steps, in the plan it will go on with.
  virtual void at_boundary() = 0;
};

// kStopped: `stop` was set. kStranded: no plan fits the devices that will be there.
enum class LoopEnd { kFinished, kStopped, kStranded };

// Runs the job to its end, or to the first boundary at which it must stop. The state of the job is
// then that of a boundary. Lets errors of the job through.
LoopEnd run_loop(Job& job, Controller& controller, Recorder& recorder,
                 const std::atomic<bool>& stop);

}  // namespace nereus
