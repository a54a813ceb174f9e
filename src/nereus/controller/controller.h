// When to adapt: monitor → replan → act.
#pragma once

#include <string>

#include "nereus/controller/decision.h"
#include "nereus/controller/monitor.h"
#include "nereus/job/job.h"
#include "nereus/planner/planner.h"

namespace nereus {

struct ControllerOptions {
  bool enabled = true;            // false: only urgent transitions (the plan no longer fits or exists)
  double gamma = 0.5;             // payback: transition ≤ gamma · H · gain; 0: urgent ones only
  MonitorOptions monitor;
  PlannerOptions planner;
};

// One per job, on host 0. Not thread-safe. Same reports, same decisions.
class Controller {
 public:
  // `plan` is the plan in force at the start.
  Controller(JobSpec job, Cluster cluster, Plan plan, Calibration calibration,
             ControllerOptions options);

  // Learns from the report, and decides what happens before the next step.
  Decision observe(const StepReport& report);
  // Must be called after an admitted transition was executed.
  void applied(const TransitionDag& dag, const TransitionReport& report);

  const Plan& plan() const { return plan_; }
  const JobSpec& job() const { return job_; }
  const Calibration& calibration() const { return calibration_; }

  // Everything needed to go on after a restart (references, horizons, calibration).
  Json save() const;
  void restore(const Json& saved);

 private:
  void learn(const StepReport& report);
  Decision replan(const StepReport& report, Decision decision);

  JobSpec job_;
  Cluster cluster_;
  Plan plan_;
  DevicePool pool_;
  Calibration calibration_;
  ControllerOptions options_;
  Monitor monitor_;
};

}  // namespace nereus
