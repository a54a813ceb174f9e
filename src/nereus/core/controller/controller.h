// When to adapt: monitor → replan → act.
#pragma once

#include <string>
#include <vector>

#include "nereus/core/controller/decision.h"
#include "nereus/core/controller/monitor.h"
#include "nereus/core/job/job.h"
#include "nereus/core/planner/planner.h"

namespace nereus {

struct ControllerOptions {
  bool enabled = true;  // false: only urgent transitions (the plan no longer fits or exists)
  double gamma = 0.5;   // payback: transition ≤ gamma · H · gain; 0: urgent ones only
  // A gain below this share of the step is noise, not a reason to move.
  double min_gain = 0.02;
  // Move what generation does not use while it runs, if memory admits it.
  bool overlap = false;
  MonitorOptions monitor;
  PlannerOptions planner;
};

// One per job, on host 0. Not thread-safe. Same reports, same decisions.
class Controller {
 public:
  // `plan` is the plan in force at the start, `pool` the devices that there are then.
  Controller(JobSpec job, Cluster cluster, Plan plan, DevicePool pool, Calibration calibration,
             ControllerOptions options);

  // Learns from the report, and decides what happens before the next step.
  Decision observe(const StepReport& report);
  // Must be called after the transition of an admitted decision was executed.
  void applied(const Decision& decision, const TransitionReport& report);
  // The plan to build from what survived a transition that failed at `step`: the one in force
  // before it if its devices are all there, else the fastest that fits those that are left.
  // kStranded if none does. The caller carries it out, and calls recovered().
  Decision recover(int step, const TransitionFailure& failure);
  void recovered(const Plan& plan);

  const Plan& plan() const { return plan_; }
  // Its workload is that of the next step.
  const JobSpec& job() const { return job_; }
  const Calibration& calibration() const { return calibration_; }

  // Everything needed to go on after a restart (references, horizons, calibration).
  Json save() const;
  void restore(const Json& saved);

 private:
  // What the next step brings, before anything is decided.
  struct Outlook {
    std::vector<DeviceId> lost;           // devices of the plan that will be gone
    std::vector<std::string> violations;  // of the plan's memory
  };
  Outlook look_ahead(const DevicePool& next_pool) const;
  // What to do after a step from which has been learned.
  Decision decide(const StepReport& report);
  Forecast forecast(const Plan& plan) const;
  // Fills in what triggered, how urgent it is and H; kNone if nothing did.
  Decision triggered(Decision decision, const DevicePool& next_pool, const Outlook& outlook);
  bool is_tolerated(const Decision& decision) const;
  Decision replan(Decision decision, const Outlook& outlook) const;
  // The decision if `candidate` were the plan to move to.
  Decision consider(Decision decision, const Candidate& candidate) const;
  // The decision with its transition, boundary or overlapped, and what it costs; or why there is
  // none.
  Decision compiled(Decision decision) const;
  std::optional<TransitionDag> compile_beside_generation(const Plan& target) const;
  std::map<ModelStage, StateSchema> schemas() const;
  // No transition: the job goes on if its plan can still run, else it is stranded.
  Decision refused(Decision decision, const Outlook& outlook, const std::string& why) const;

  JobSpec job_;
  Cluster cluster_;
  Plan plan_;
  DevicePool pool_;
  Calibration calibration_;
  ControllerOptions options_;
  Monitor monitor_;
  // The highest peak of the plan in force for which no better plan was found though it is above
  // what the planner would choose: until it grows, nobody looks again.
  std::optional<double> tolerated_peak_share_;
  bool pending_ = false;  // an admitted transition runs beside the next step
  bool overdue_ = false;  // one was admitted before a restart, and not made
};

}  // namespace nereus
