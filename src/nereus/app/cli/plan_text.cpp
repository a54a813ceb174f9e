#include "nereus/app/cli/plan_text.h"

#include <algorithm>

#include "nereus/app/observe/tables.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

std::string short_text(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) text += "  " + short_stage(stage) + "\n";
  return text;
}

std::string render_step(const StepLatency& latency, const Calibration& calibration) {
  const auto interval = [](const TimeEstimate& estimate) {
    return to_string(estimate.low) + " – " + to_string(estimate.high);
  };
  std::vector<std::vector<std::string>> rows{{"pass", "predicted", "9 of 10 within", "of which"}};
  for (const NodeLatency& node : latency.nodes) {
    std::vector<std::string> parts;
    for (const auto& [op_class, operations] : node.work) {
      const Seconds time = predicted_time(Work{{op_class, operations}}, calibration);
      if (time.count() > 0) parts.push_back(to_string(op_class) + " " + to_string(time));
    }
    rows.push_back(
        {node.name, to_string(node.predicted), interval(node.estimate), join(parts, ", ")});
  }
  rows.push_back({"step", to_string(latency.total), interval(latency.estimate), ""});
  return render_table(rows);
}

// The stages of a plan that are not as in the best one.
std::string differences(const Plan& plan, const Plan& best) {
  std::vector<std::string> stages;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    if (plan.stages[i] != best.stages.at(i)) stages.push_back(short_stage(plan.stages[i]));
  }
  return join(stages, "\n    ");
}

}  // namespace

std::string render_changes(const std::vector<Change>& changes, std::optional<Seconds> now) {
  std::vector<std::vector<std::string>> rows;
  for (const Change& change : changes) {
    std::string effect = change.step ? to_string(*change.step) : change.step.error();
    if (change.step && now) {
      effect += " (" + format_number(100 * (*change.step / *now - 1), "%+.1f") + " %)";
    }
    rows.push_back({change.what, effect});
  }
  return render_table(rows);
}

std::string render_report(const PlanReport& report, const std::vector<Change>& changes,
                          const Cluster& cluster, const Calibration& calibration) {
  std::string text = "Plan\n" + short_text(report.best.plan);
  if (!report.idle.empty()) text += "  idle: " + span_of(report.idle) + "\n";
  text += "\nPredicted step\n" + render_step(report.best.latency, calibration);
  if (!report.best.latency.unseen.empty()) {
    std::vector<std::string> names;
    for (OpClass op_class : report.best.latency.unseen) names.push_back(to_string(op_class));
    text += "Never measured, so taken to be slow: " + join(names, ", ") + "\n";
  }
  text += "\nPredicted memory\n" + render_memory(report.memory, cluster);
  if (!report.runners_up.empty()) text += "\nRunners-up, where they differ\n";
  for (const Rejection& rejection : report.runners_up) {
    text += to_string(rejection.step) + "  " + rejection.why + "\n    " +
            differences(rejection.plan, report.best.plan) + "\n";
  }
  return text + "\nWhat would help\n" + render_changes(changes, report.best.latency.total);
}

}  // namespace nereus
