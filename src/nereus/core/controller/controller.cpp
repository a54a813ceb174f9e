#include "nereus/core/controller/controller.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "nereus/core/base/text.h"
#include "nereus/core/controller/learning.h"
#include "nereus/core/state/residency.h"
#include "nereus/core/transition/compile.h"

namespace nereus {
namespace {

std::string names(const std::vector<DeviceId>& devices) {
  std::vector<std::string> words;
  for (DeviceId device : devices) words.push_back(to_string(device));
  return join(words, ", ");
}

// The devices of `a` that are not in `b`.
std::vector<DeviceId> missing(const DevicePool& a, const DevicePool& b) {
  std::vector<DeviceId> devices;
  std::ranges::set_difference(a.devices(), b.devices(), std::back_inserter(devices));
  return devices;
}

std::string pool_detail(const DevicePool& before, const DevicePool& now) {
  std::string text =
      "devices " + std::to_string(before.size()) + " → " + std::to_string(now.size());
  const std::vector<DeviceId> gone = missing(before, now);
  const std::vector<DeviceId> come = missing(now, before);
  if (!gone.empty()) text += ", gone: " + names(gone);
  if (!come.empty()) text += ", new: " + names(come);
  return text;
}

std::string crossing_detail(const Monitor::Crossing& crossing) {
  return crossing.signal + " " + format_number(crossing.reference) + " → " +
         format_number(crossing.value) + " (" +
         format_number(100 * (crossing.value / crossing.reference - 1), "%+.0f") +
         " %, threshold " + format_number(100 * crossing.threshold) + " %)";
}

double peak_share(const MemoryPrediction& prediction, const Cluster& cluster) {
  double share = 0;
  for (const auto& [device, bytes] : prediction.peak) {
    share = std::max(share, bytes / cluster.device.memory);
  }
  return share;
}

}  // namespace

Controller::Controller(JobSpec job, Cluster cluster, Plan plan, DevicePool pool,
                       Calibration calibration, ControllerOptions options)
    : job_(std::move(job)),
      cluster_(std::move(cluster)),
      plan_(std::move(plan)),
      pool_(std::move(pool)),
      calibration_(std::move(calibration)),
      options_(std::move(options)),
      monitor_(options_.monitor) {}

Decision Controller::observe(const StepReport& report) {
  if (report.adjusted_plan) {
    plan_ = *report.adjusted_plan;
    tolerated_peak_share_.reset();
    monitor_.forget("efficiency");
  }
  // A step beside which a transition ran had two plans, and is no measure of either.
  if (!report.transition) calibration_ = learned(calibration_, report, plan_, job_, cluster_);
  job_.workload = report.next_workload;
  job_.workload.response_mean =
      std::min(job_.workload.response_mean, static_cast<double>(job_.workload.response_limit));
  Decision decision = decide(report);
  pending_ = decision.overlapped && decision.transition;
  const bool one_plan_follows = !pending_;
  if (report.steps_left > 0 && decision.verdict != Verdict::kStranded && one_plan_follows) {
    decision.next = forecast(decision.transition ? *decision.best : plan_);
  }
  return decision;
}

Decision Controller::decide(const StepReport& report) {
  Decision decision{.step = report.step, .gamma = options_.gamma};
  decision.signals = {
      {"response_length", job_.workload.response_mean},
      {"devices", report.next_pool.size()},
      {"peak_share", peak_share(predict_memory(plan_, job_, calibration_), cluster_)}};
  // Passes that ran out of memory took their time, too.
  if (!report.transition && !report.adjusted_plan) {
    decision.signals["efficiency"] = step_efficiency(report, plan_, job_, cluster_);
  }
  if (report.steps_left == 0) {
    decision.reason = "that was the last step";
    return decision;
  }
  const Outlook outlook = look_ahead(report.next_pool);
  decision = triggered(std::move(decision), report.next_pool, outlook);
  pool_ = report.next_pool;
  if (decision.trigger == Trigger::kNone) return decision;
  decision.horizon = std::min(decision.horizon, static_cast<double>(report.steps_left));
  monitor_.reset(decision.signals);
  decision = replan(std::move(decision), outlook);
  tolerated_peak_share_.reset();
  if (!outlook.violations.empty() && !decision.transition) {
    tolerated_peak_share_ = decision.signals.at("peak_share");
  }
  return decision;
}

bool Controller::is_tolerated(const Decision& decision) const {
  constexpr double kWandering = 1.01;  // predictions do, a little, with every step learned from
  return tolerated_peak_share_ &&
         decision.signals.at("peak_share") <= kWandering * *tolerated_peak_share_;
}

Forecast Controller::forecast(const Plan& plan) const {
  return {predict_step(plan, job_, cluster_, calibration_).estimate,
          predict_memory(plan, job_, calibration_).peak};
}

Controller::Outlook Controller::look_ahead(const DevicePool& next_pool) const {
  // Half of the headroom is there to be used before a plan that was chosen with all of it moves
  // again: predictions wander a little with every step learned from.
  return {missing(devices_of(plan_), next_pool),
          memory_violations(predict_memory(plan_, job_, calibration_), cluster_,
                            options_.planner.headroom / 2)};
}

Decision Controller::triggered(Decision decision, const DevicePool& next_pool,
                               const Outlook& outlook) {
  std::vector<std::string> fired;
  std::vector<std::string> details;
  for (const Monitor::Crossing& crossing : monitor_.check(decision.step, decision.signals)) {
    decision.trigger = Trigger::kDrift;
    fired.push_back(crossing.signal);
    details.push_back(crossing_detail(crossing));
  }
  if (std::exchange(overdue_, false)) {
    decision.trigger = Trigger::kDrift;
    details.emplace_back("a transition that was admitted before the restart");
  }
  if (!outlook.violations.empty() && !is_tolerated(decision)) {
    decision.trigger = Trigger::kMemory;
    fired.emplace_back("memory");
    details.insert(details.begin(), outlook.violations.front());
  }
  if (next_pool != pool_) {
    decision.trigger = Trigger::kPoolChange;
    fired.emplace_back("pool");
    details.insert(details.begin(), pool_detail(pool_, next_pool));
  }
  for (const char* event : {"memory", "pool"}) {
    if (std::ranges::count(fired, event) > 0) monitor_.event(decision.step, event);
  }
  decision.trigger_detail = join(details, "; ");
  decision.urgent = !outlook.lost.empty() || !outlook.violations.empty();
  decision.horizon = monitor_.horizon(fired);
  if (decision.trigger == Trigger::kNone) decision.reason = "no trigger";
  return decision;
}

Decision Controller::replan(Decision decision, const Outlook& outlook) const {
  decision.current_step = predict_step(plan_, job_, cluster_, calibration_).total;
  if (!options_.enabled && !decision.urgent) {
    decision.verdict = Verdict::kKept;
    decision.reason = "adaptation is off: only urgent transitions are made";
    return decision;
  }
  const Expected<PlanChoice> choice =
      choose_plan(job_, cluster_, pool_, calibration_, options_.planner, &plan_);
  if (!choice) return refused(std::move(decision), outlook, choice.error());
  if (choice->best.plan == plan_) {
    decision.best = plan_;
    decision.best_step = decision.current_step;
    decision.verdict = Verdict::kKept;
    decision.reason = "the plan in force is still the fastest that fits";
    return decision;
  }

  Decision first = consider(decision, choice->best);
  if (first.verdict == Verdict::kAdmitted || first.verdict == Verdict::kKept) return first;
  for (const Candidate& candidate : choice->alternatives) {
    if (candidate.plan == plan_) break;
    Decision other = consider(decision, candidate);
    if (other.verdict == Verdict::kAdmitted) {
      other.reason += " (the fastest plan was refused: " + first.reason + ")";
      return other;
    }
    if (other.verdict == Verdict::kKept) break;  // from here on, nothing is gained
  }
  if (!decision.urgent) return first;
  const std::string why = first.reason;
  return refused(std::move(first), outlook, why);
}

Decision Controller::consider(Decision decision, const Candidate& candidate) const {
  decision.best = candidate.plan;
  decision.best_step = candidate.latency.total;
  decision.gain_s = decision.current_step - decision.best_step;
  const double share = decision.gain_s / decision.current_step;
  if (!decision.urgent && share <= options_.min_gain) {
    decision.verdict = Verdict::kKept;
    decision.reason = "gain " + format_number(decision.gain_s.count()) + " s/step (" +
                      format_number(100 * share, "%.1f") + " % of the step) does not exceed " +
                      format_number(100 * options_.min_gain) + " %: the plan stays";
    return decision;
  }
  // Devices are interchangeable: each gets the part of which it holds most already.
  decision.best = relabel_for_residency(plan_, candidate.plan, schemas(), pool_);
  decision = compiled(std::move(decision));
  if (!decision.transition) return decision;
  const Seconds budget = decision.gain_s * (decision.gamma * decision.horizon);
  const bool pays = decision.gamma > 0 && decision.transition_s <= budget;
  if (decision.urgent) {
    decision.reason =
        "urgent, profit waived: transition " + to_string(decision.transition_s) + ": admitted";
  } else {
    decision.reason = "gain " + format_number(decision.gain_s.count()) + " s/step × γ " +
                      format_number(decision.gamma) + " × H " + format_number(decision.horizon) +
                      " = " + to_string(budget) + (pays ? " ≥ " : " < ") + "transition " +
                      to_string(decision.transition_s) + (pays ? ": admitted" : ": rejected");
  }
  decision.verdict = pays || decision.urgent ? Verdict::kAdmitted : Verdict::kRejected;
  if (decision.verdict != Verdict::kAdmitted) decision.transition.reset();
  return decision;
}

Decision Controller::compiled(Decision decision) const {
  Seconds generation;  // beside which an overlapped transition goes
  const StepLatency latency = predict_step(plan_, job_, cluster_, calibration_);
  for (const NodeId node : node_ids(job_.workflow)) {
    if (job_.workflow.at(node).pass != Pass::kGenerate) continue;
    generation += latency.nodes[index(node)].predicted;
  }
  std::optional<TransitionDag> beside;
  if (options_.overlap) beside = compile_beside_generation(*decision.best);
  if (beside) {
    decision.overlapped = true;
    decision.hidden_s = std::min(beside->makespan, generation);
    decision.transition_s = beside->makespan - decision.hidden_s + calibration_.settling();
    decision.transition = std::move(beside);
    return decision;
  }
  Expected<TransitionDag> dag =
      compile_transition(plan_, *decision.best, job_, cluster_, calibration_);
  if (!dag) {
    decision.verdict = Verdict::kRejected;
    decision.reason = "no admissible transition: " + dag.error();
    return decision;
  }
  decision.transition_s = dag->makespan + calibration_.settling();
  decision.transition = *std::move(dag);
  return decision;
}

// Generation goes on in its units, and needs its memory; everything else moves. Nothing if devices
// of the plan are going, or if the step would not fit half-way.
std::optional<TransitionDag> Controller::compile_beside_generation(const Plan& target) const {
  if (!missing(devices_of(plan_), pool_).empty()) return std::nullopt;
  Plan half_way = target;
  for (StagePlan& stage : half_way.stages) {
    if (stage.model_stage == kActorGeneration) stage = at(plan_, kActorGeneration);
  }
  const MemoryPrediction memory = predict_memory(half_way, job_, calibration_);
  if (!memory_violations(memory, cluster_, options_.planner.headroom / 2).empty()) {
    return std::nullopt;
  }
  TransitionOptions options;
  for (const MemoryEntry& entry : memory.entries) {
    if (entry.resident || entry.model_stage != kActorGeneration) continue;
    options.reserved[entry.device] += entry.bytes * calibration_.memory_factor();
  }
  auto dag = compile_transition(plan_, half_way, job_, cluster_, calibration_, options);
  if (!dag || dag->empty()) return std::nullopt;
  return *std::move(dag);
}

std::map<ModelStage, StateSchema> Controller::schemas() const {
  std::map<ModelStage, StateSchema> schemas;
  for (const StagePlan& stage : plan_.stages) {
    const ModelStage model_stage = stage.model_stage;
    schemas[model_stage] = state_schema(job_.models.at(model_stage.role), model_stage);
  }
  return schemas;
}

Decision Controller::refused(Decision decision, const Outlook& outlook,
                             const std::string& why) const {
  const bool fits =
      memory_violations(predict_memory(plan_, job_, calibration_), cluster_, 0).empty();
  if (outlook.lost.empty() && fits) {
    decision.verdict = Verdict::kRejected;
    decision.reason = why + "; the plan in force still fits without headroom and stays";
    return decision;
  }
  decision.verdict = Verdict::kStranded;
  decision.reason = why + "; " +
                    (outlook.lost.empty() ? outlook.violations.front()
                                          : "the plan needs " + names(outlook.lost)) +
                    "; give the job more devices or memory, shorter responses or smaller "
                    "micro-batches, and resume it";
  return decision;
}

void Controller::applied(const Decision& decision, const TransitionReport& report) {
  plan_ = decision.best.value();
  tolerated_peak_share_.reset();
  pending_ = false;
  calibration_ = learned(calibration_, decision.transition.value(), report);
  monitor_.forget("efficiency");
}

Decision Controller::recover(int step, const TransitionFailure& failure) {
  Decision decision{.step = step, .trigger = Trigger::kFault, .trigger_detail = failure.reason};
  decision.urgent = true;
  pool_ = DevicePool(missing(pool_, DevicePool(failure.lost)));
  if (missing(devices_of(plan_), pool_).empty()) {
    decision.best = plan_;
    decision.verdict = Verdict::kAdmitted;
    decision.reason = "no device was lost: back to the plan in force before";
    return decision;
  }
  const Expected<PlanChoice> choice =
      choose_plan(job_, cluster_, pool_, calibration_, options_.planner, &plan_);
  if (!choice) {
    decision.verdict = Verdict::kStranded;
    decision.reason = choice.error();
    return decision;
  }
  decision.best = choice->best.plan;
  decision.best_step = choice->best.latency.total;
  decision.verdict = Verdict::kAdmitted;
  decision.reason = "lost " + names(failure.lost) + ": the fastest plan on the " +
                    std::to_string(pool_.size()) + " devices that are left";
  return decision;
}

void Controller::recovered(const Plan& plan) {
  plan_ = plan;
  pending_ = false;
  tolerated_peak_share_.reset();
  monitor_.forget("efficiency");
}

Json Controller::save() const {
  return {{"plan", plan_},
          {"pool", pool_},
          {"workload", job_.workload},
          {"calibration", calibration_},
          {"monitor", monitor_.save()},
          {"pending", pending_ || overdue_},
          {"tolerated_peak_share", tolerated_peak_share_ ? Json(*tolerated_peak_share_) : Json()}};
}

void Controller::restore(const Json& saved) {
  const std::string where = "controller state";
  plan_ = require<Plan>(saved, "plan", where);
  pool_ = require<DevicePool>(saved, "pool", where);
  job_.workload = require<Workload>(saved, "workload", where);
  calibration_ = require<Calibration>(saved, "calibration", where);
  monitor_.restore(require<Json>(saved, "monitor", where));
  overdue_ = saved.value("pending", false);
  const Json tolerated = saved.value("tolerated_peak_share", Json());
  if (tolerated.is_number()) tolerated_peak_share_ = tolerated.get<double>();
}

}  // namespace nereus
