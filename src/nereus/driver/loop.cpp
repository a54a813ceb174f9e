#include "nereus/driver/loop.h"

namespace nereus {

namespace {

// Carries out a transition. If it fails, the job goes on in a plan made from what is intact; false
// if there is none.
bool carry_out(int step, const TransitionDag& dag, Job& job, Controller& controller,
               Recorder& recorder) {
  TransitionReport done = job.apply(dag);
  recorder.write(step, dag, done);
  if (!done.failure) {
    controller.applied(dag, done);
    return true;
  }
  while (done.failure) {
    const Decision decision = controller.recover(step, *done.failure);
    recorder.write(step, decision);
    if (decision.verdict == Verdict::kStranded) return false;
    done = job.recover(*decision.best);
    if (!done.failure) controller.recovered(*decision.best);
  }
  return true;
}

}  // namespace

LoopEnd run_loop(Job& job, Controller& controller, Recorder& recorder,
                 const std::atomic<bool>& stop) {
  while (!job.done()) {
    if (stop) return LoopEnd::kStopped;
    const StepReport report = job.run_step();
    const Decision decision = controller.observe(report);
    recorder.write(report, decision);
    if (decision.verdict == Verdict::kStranded) return LoopEnd::kStranded;
    if (decision.transition &&
        !carry_out(report.step, *decision.transition, job, controller, recorder)) {
      return LoopEnd::kStranded;
    }
    recorder.at_boundary();
  }
  return LoopEnd::kFinished;
}

}  // namespace nereus
