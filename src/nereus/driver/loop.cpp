#include "nereus/driver/loop.h"

namespace nereus {

LoopEnd run_loop(Job& job, Controller& controller, Recorder& recorder,
                 const std::atomic<bool>& stop) {
  while (!job.done()) {
    if (stop) return LoopEnd::kStopped;
    const StepReport report = job.run_step();
    const Decision decision = controller.observe(report);
    recorder.write(report, decision);
    if (decision.verdict == Verdict::kStranded) return LoopEnd::kStranded;
    if (decision.transition) {
      const TransitionReport done = job.apply(*decision.transition);
      controller.applied(*decision.transition, done);
      recorder.write(report.step, *decision.transition, done);
    }
    recorder.at_boundary();
  }
  return LoopEnd::kFinished;
}

}  // namespace nereus
