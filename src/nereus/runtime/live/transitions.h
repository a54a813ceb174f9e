// The transitions of a live job: at a boundary, beside generation, and after faults.
#pragma once

#include <future>
#include <optional>
#include <set>

#include "nereus/runtime/engine/transition_executor.h"
#include "nereus/runtime/live/options.h"
#include "nereus/runtime/live/runtime.h"

namespace nereus {

// Used by the host thread only, as the runtime is.
class Transitions final {
 public:
  // Both outlive it.
  Transitions(Runtime& runtime, const LiveOptions& options)
      : runtime_(runtime), options_(options) {}

  // As Job's.
  TransitionReport apply(const TransitionDag& dag);
  TransitionReport recover(const Plan& to);

  // Begins a transition that leaves generation's units alone, on second threads of the devices;
  // until join() only generation may run.
  void start(TransitionDag dag);
  // Waits for its end and, unless it failed, puts dag.to in force.
  TransitionReport join();

  const std::set<DeviceId>& lost() const { return lost_; }  // devices that died

 private:
  std::function<StateSchema(ModelStage)> schemas() const;
  ExecuteOptions execute_options() const;
  // Hashes the state of a plan if transitions are verified; returns the seconds that took.
  Seconds remember(const Plan& plan, const WorkerPool& workers);
  // What died is gone.
  void drop_lost(const TransitionReport& report);

  Runtime& runtime_;
  const LiveOptions& options_;
  StageHashes hashes_;  // of the state before the last transition, if verified
  std::set<DeviceId> lost_;
  std::optional<WorkerPool> second_workers_;
  Plan target_;                            // of the running transition
  std::future<TransitionReport> running_;  // waits for its end when destroyed
};

}  // namespace nereus
