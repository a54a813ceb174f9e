#include "nereus/cli/plan_text.h"

#include <algorithm>
#include <map>

#include "nereus/base/text.h"
#include "nereus/observe/tables.h"

namespace nereus {

namespace {

// "0:0 … 3:7 (32)", or the names of a few.
std::string span_of(const std::vector<DeviceId>& devices) {
  constexpr size_t kFew = 4;
  std::vector<std::string> names;
  for (DeviceId device : devices) names.push_back(to_string(device));
  if (names.size() <= kFew) return join(names, " ");
  return names.front() + " … " + names.back() + " (" + std::to_string(names.size()) + ")";
}

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

std::string short_stage(const StagePlan& stage) {
  constexpr size_t kMostListed = 16;
  const std::vector<DeviceId> devices = devices_of({{stage}}).devices();
  const std::string text = to_string(stage);
  if (devices.size() <= kMostListed) return text;
  return text.substr(0, text.find('[')) + span_of(devices);
}

std::string render_memory_groups(const MemoryPrediction& memory, const Cluster& cluster) {
  std::vector<std::string> components;
  std::map<DeviceId, std::map<std::string, Bytes>> cells;
  for (const MemoryEntry& entry : memory.entries) {
    if (std::ranges::find(components, entry.component) == components.end()) {
      components.push_back(entry.component);
    }
    Bytes& cell = cells[entry.device][entry.component];
    cell = entry.resident ? cell + entry.bytes : std::max(cell, entry.bytes);
  }
  std::vector<std::pair<std::vector<std::string>, std::vector<DeviceId>>> groups;
  for (const auto& [device, peak] : memory.peak) {
    std::vector<std::string> row;
    for (const std::string& component : components) {
      row.push_back(to_string(cells[device][component]));
    }
    row.push_back(to_string(peak));
    row.push_back(is_host_memory(device) ? "" : to_string(cluster.device.memory));
    const auto same = std::ranges::find(groups, row, [](const auto& group) { return group.first; });
    if (same == groups.end()) {
      groups.push_back({row, {device}});
    } else {
      same->second.push_back(device);
    }
  }
  std::vector<std::vector<std::string>> rows{{"devices"}};
  rows[0].insert(rows[0].end(), components.begin(), components.end());
  rows[0].insert(rows[0].end(), {"peak", "capacity"});
  for (auto& [row, devices] : groups) {
    row.insert(row.begin(), span_of(devices));
    rows.push_back(std::move(row));
  }
  return render_table(rows);
}

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
  text += "\nPredicted memory\n" + render_memory_groups(report.memory, cluster);
  if (!report.runners_up.empty()) text += "\nRunners-up, where they differ\n";
  for (const Rejection& rejection : report.runners_up) {
    text += to_string(rejection.step) + "  " + rejection.why + "\n    " +
            differences(rejection.plan, report.best.plan) + "\n";
  }
  return text + "\nWhat would help\n" + render_changes(changes, report.best.latency.total);
}

}  // namespace nereus
