#include "nereus/app/compare/plan_compare.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "nereus/app/observe/tables.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

Bytes most(const MemoryPrediction& memory) {
  Bytes most;
  for (const auto& [device, bytes] : memory.peak) {
    if (!is_host_memory(device)) most = std::max(most, bytes);
  }
  return most;
}

// Both step by step, with the ratio of the times.
std::string render_steps(const Comparison& comparison, const PlanReport& best,
                         const std::string& name) {
  std::vector<std::vector<std::string>> rows{{"predicted", name, "best plan", "ratio"}};
  const auto add = [&](const std::string& what, Seconds setting, Seconds ours) {
    rows.push_back({what, to_string(setting), to_string(ours),
                    ours.count() > 0 ? format_number(setting / ours, "%.2f") : ""});
  };
  const StepLatency& setting = comparison.predicted.best.latency;
  const StepLatency& ours = best.best.latency;
  for (size_t i = 0; i < setting.nodes.size(); ++i) {
    add(setting.nodes[i].name, setting.nodes[i].predicted, ours.nodes.at(i).predicted);
  }
  add("step", setting.total, ours.total);
  rows.push_back({"largest peak", to_string(most(comparison.predicted.memory)),
                  to_string(most(best.memory)), ""});
  rows.push_back({"fits", comparison.violations.empty() ? "yes" : "no", "yes", ""});
  return render_table(rows);
}

std::string render_differences(const Plan& setting, const Plan& best, const std::string& name) {
  std::string text;
  for (size_t i = 0; i < setting.stages.size(); ++i) {
    if (setting.stages[i] == best.stages.at(i)) continue;
    text += "  " + name + ": " + short_stage(setting.stages[i]) +
            "\n  best: " + std::string(name.size() > 4 ? name.size() - 4 : 0, ' ') +
            short_stage(best.stages[i]) + "\n";
  }
  return text.empty() ? "  nothing\n" : text;
}

std::string render_notes(const std::string& heading, const std::vector<KeyNote>& notes) {
  if (notes.empty()) return "";
  std::string text = heading + "\n";
  for (const KeyNote& note : notes) {
    text += "  " + note.key + (note.note.empty() ? "" : ": " + note.note) + "\n";
  }
  return text;
}

Json to_json(const std::vector<KeyNote>& notes) {
  Json list = Json::array();
  for (const KeyNote& note : notes) list.push_back({{"key", note.key}, {"note", note.note}});
  return list;
}

}  // namespace

Comparison predict_setting(ForeignSetting setting, std::vector<std::string> job_changes,
                           const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                           double headroom) {
  PlanReport predicted;
  predicted.best.plan = to_plan(setting, job, pool);
  predicted.best.latency = predict_step(predicted.best.plan, job, cluster, Calibration());
  predicted.memory = predict_memory(predicted.best.plan, job, Calibration());
  std::ranges::set_difference(pool.devices(), devices_of(predicted.best.plan).devices(),
                              std::back_inserter(predicted.idle));
  std::vector<std::string> violations = memory_violations(predicted.memory, cluster, headroom);
  return {std::move(setting), std::move(job_changes), std::move(predicted), std::move(violations),
          std::nullopt};
}

std::optional<PlanReport> best_on_as_many(const ForeignSetting& setting, const JobSpec& job,
                                          const Cluster& cluster, const DevicePool& pool,
                                          const PlannerOptions& planner) {
  if (setting.devices() >= pool.size()) return std::nullopt;
  std::vector<DeviceId> devices = pool.devices();
  devices.resize(static_cast<size_t>(setting.devices()));
  Expected<PlanReport> best =
      report_plan(job, cluster, DevicePool(std::move(devices)), Calibration(), planner);
  if (best) return *std::move(best);
  throw Error(ErrorCode::kInfeasible,
              "--compare: the setting takes " + std::to_string(setting.devices()) + " of " +
                  std::to_string(pool.size()) + " devices, and " + best.error() +
                  "\nWithout --compare, the plan is one on all of them");
}

std::string render_comparison(const Comparison& comparison, const PlanReport& best,
                              const Cluster& cluster) {
  const ForeignSetting& setting = comparison.setting;
  const PlanReport& equal = comparison.best ? *comparison.best : best;
  const std::string name = to_string(setting.framework);
  const double ratio = comparison.predicted.best.latency.total / equal.best.latency.total;
  std::string text = "Beside it: the setting of ";
  text += name + " on " + std::to_string(setting.devices()) + " devices, predicted to take " +
          format_number(ratio, "%.2f") + " × the best plan's step";
  if (comparison.best) text += " on as many devices (the plan above is for more)";
  if (!comparison.violations.empty()) text += ", but it does not fit";
  text += '\n';
  text += render_steps(comparison, equal, name);
  for (const std::string& violation : comparison.violations) text += "  " + violation + "\n";
  text +=
      "What differs\n" + render_differences(comparison.predicted.best.plan, equal.best.plan, name);
  text += "Memory of the setting\n" + render_memory(comparison.predicted.memory, cluster);
  if (!comparison.job.empty()) {
    text += "Job of both as in the setting: " + join(comparison.job, " ") + "\n";
  }
  text += render_notes("Approximated", setting.approximated);
  text += render_notes("Ignored", setting.ignored);
  text += render_notes("Unknown keys, ignored", setting.unknown);
  return text;
}

Json to_json(const Comparison& comparison, const PlanReport& best) {
  const ForeignSetting& setting = comparison.setting;
  const Candidate& equal = comparison.best ? comparison.best->best : best.best;
  Json json = to_json(comparison.predicted, Calibration());
  json.erase("runners_up");
  json.erase("layouts");
  json.update({{"framework", to_string(setting.framework)},
               {"ratio", comparison.predicted.best.latency.total / equal.latency.total},
               {"best", {{"plan", equal.plan}, {"step_s", equal.latency.total}}},
               {"fits", comparison.violations.empty()},
               {"violations", comparison.violations},
               {"job", comparison.job},
               {"approximated", to_json(setting.approximated)},
               {"ignored", to_json(setting.ignored)},
               {"unknown", to_json(setting.unknown)}});
  return json;
}

}  // namespace nereus
