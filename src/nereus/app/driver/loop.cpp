#include "nereus/app/driver/loop.h"

#include <optional>
#include <string>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

// After a transition was executed. If it failed, the job goes on in a plan made from what is
// intact; false if there is none. Throws Error(kAborted) if that fails again and again though no
// further device is lost: what is wrong does not go away by itself.
bool settle(int step, const Decision& decision, TransitionReport done, Job& job,
            Controller& controller, Recorder& recorder) {
  recorder.write(step, decision, done);
  if (!done.failure) controller.applied(decision, done);
  constexpr int kAttempts = 3;
  for (int attempt = 1; done.failure; ++attempt) {
    if (!done.failure->lost.empty()) attempt = 0;
    if (attempt == kAttempts) {
      throw Error(ErrorCode::kAborted,
                  "recovery failed " + std::to_string(kAttempts) +
                      " times without losing a device: " + done.failure->reason);
    }
    const Decision recovery = controller.recover(step, *done.failure);
    recorder.write(step, recovery);
    if (recovery.verdict == Verdict::kStranded) return false;
    done = job.recover(*recovery.best);
    if (!done.failure) controller.recovered(*recovery.best);
  }
  return true;
}

}  // namespace

LoopEnd run_loop(Job& job, Controller& controller, Recorder& recorder,
                 const std::atomic<bool>& stop) {
  std::optional<Decision> overlapped;  // its transition runs beside the next step
  while (!job.done()) {
    if (stop) return LoopEnd::kStopped;
    const StepReport report = job.run_step();
    if (report.transition) {
      const Decision made = *std::exchange(overlapped, std::nullopt);
      if (!settle(report.step, made, *report.transition, job, controller, recorder)) {
        return LoopEnd::kStranded;
      }
      if (report.transition->failure) continue;
    }
    if (report.abandoned) return LoopEnd::kStopped;
    const Decision decision = controller.observe(report);
    recorder.write(report, decision);
    if (decision.verdict == Verdict::kStranded) return LoopEnd::kStranded;
    if (decision.transition && decision.overlapped) {
      job.overlap(*decision.transition, *decision.best);
      overlapped = decision;
    } else if (decision.transition) {
      TransitionReport done = job.apply(*decision.transition);
      if (!settle(report.step, decision, std::move(done), job, controller, recorder)) {
        return LoopEnd::kStranded;
      }
    }
    recorder.at_boundary();
  }
  return LoopEnd::kFinished;
}

}  // namespace nereus
