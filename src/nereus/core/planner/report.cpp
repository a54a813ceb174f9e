#include "nereus/core/planner/report.h"

#include <algorithm>
#include <bit>
#include <set>

#include "nereus/core/base/text.h"
#include "nereus/core/planner/search.h"

namespace nereus {
namespace {

std::vector<DeviceId> idle_devices(const Plan& plan, const DevicePool& pool) {
  std::vector<DeviceId> idle;
  std::ranges::set_difference(pool.devices(), devices_of(plan).devices(), std::back_inserter(idle));
  return idle;
}

std::string slower_by(Seconds time, Seconds best) {
  return "slower by " + format_number(100 * (time / best - 1), "%.1f") + " %";
}

std::vector<Rejection> runners_up(Problem& problem, const PlanChoice& choice,
                                  const PlannerOptions& options) {
  std::vector<Rejection> rejected;
  for (const Found& found : search(problem, search_options(options, kUnlimited))) {
    Plan plan = problem.plan(found);
    const std::vector<std::string> violations =
        memory_violations(problem.memory(plan), problem.cluster(), options.headroom);
    if (violations.empty()) break;  // from here on, fitting plans are among the fastest
    rejected.push_back({std::move(plan), found.total, "does not fit: " + violations.front()});
  }
  const Seconds best = choice.best.latency.total;
  for (const Candidate& other : choice.alternatives) {
    rejected.push_back({other.plan, other.latency.total, slower_by(other.latency.total, best)});
  }
  return rejected;
}

// Pipelines of powers of two give a picture; of the others only the best plan's own.
std::vector<LayoutStep> layout_steps(const Problem& problem, const Plan& best,
                                     const PlannerOptions& options) {
  const Layout own = at(best, kActorTraining).layout;
  std::set<std::pair<int, int>> layouts{{own.tp, own.pp}};
  for (const Placement& placement : problem.stages().front().placements) {
    const Layout layout = placement.stage.layout;
    if (std::has_single_bit(unsigned(layout.pp))) layouts.emplace(layout.tp, layout.pp);
  }
  SearchOptions only_best =
      search_options(options, usable_memory(problem.cluster().device, options.headroom));
  only_best.keep = 0;
  std::vector<LayoutStep> steps;
  for (const auto& [tp, pp] : layouts) {
    Problem restricted = problem.with_training(tp, pp);
    const std::vector<Found> found = search(restricted, only_best);
    steps.push_back({{tp, pp}, found.empty() ? std::nullopt : std::optional(found.front().total)});
  }
  return steps;
}

// All hosts once more, numbered on.
std::pair<Cluster, DevicePool> doubled(Cluster cluster, const DevicePool& pool) {
  const int hosts = static_cast<int>(cluster.hosts.size());
  std::vector<DeviceId> devices = pool.devices();
  for (DeviceId device : pool.devices()) devices.push_back({device.host + hosts, device.index});
  const std::vector<HostSpec> again = cluster.hosts;
  cluster.hosts.insert(cluster.hosts.end(), again.begin(), again.end());
  return {std::move(cluster), DevicePool(std::move(devices))};
}

}  // namespace

Expected<PlanReport> report_plan(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                                 const Calibration& calibration, const PlannerOptions& options) {
  if (pool.empty()) return tl::unexpected(std::string("no device is available"));
  Problem problem(job, cluster, pool, calibration, options, nullptr);
  return report_plan(problem, options);
}

Expected<PlanReport> report_plan(Problem& problem, const PlannerOptions& options) {
  Expected<PlanChoice> choice = choose_plan(problem, options);
  if (!choice) return tl::unexpected(choice.error());
  PlanReport report{.best = choice->best,
                    .memory = problem.memory(choice->best.plan),
                    .idle = idle_devices(choice->best.plan, problem.pool()),
                    .runners_up = runners_up(problem, *choice, options),
                    .layouts = layout_steps(problem, choice->best.plan, options)};
  return report;
}

std::vector<Change> what_would_help(const JobSpec& job, const Cluster& cluster,
                                    const DevicePool& pool, const Calibration& calibration,
                                    const PlannerOptions& options) {
  Problem problem(job, cluster, pool, calibration, options, nullptr);
  return what_would_help(problem, options);
}

std::vector<Change> what_would_help(Problem& problem, PlannerOptions options) {
  options.keep = 0;
  const auto step = [&](Problem& other, const DeviceSpec& device) -> Expected<Seconds> {
    const std::vector<Found> found =
        search(other, search_options(options, usable_memory(device, options.headroom)));
    if (found.empty()) return tl::unexpected(std::string("does not fit"));
    return found.front().total;
  };
  const Cluster& cluster = problem.cluster();
  std::vector<Change> changes;
  const auto [twice, devices] = doubled(cluster, problem.pool());
  Problem with_twice(problem.job(), twice, devices, problem.calibration(), options, nullptr);
  changes.push_back({"twice the devices (" + std::to_string(devices.size()) + ")",
                     step(with_twice, cluster.device)});
  // No candidate depends on how much memory there is.
  DeviceSpec larger = cluster.device;
  larger.memory = larger.memory * 2;
  changes.push_back(
      {"twice the memory per device (" + to_string(larger.memory) + ")", step(problem, larger)});
  JobSpec shorter = problem.job();
  Workload& workload = shorter.workload;
  workload.response_limit = std::max<int64_t>(1, workload.response_limit / 2);
  workload.response_mean = std::min(workload.response_mean / 2, double(workload.response_limit));
  Problem with_shorter(shorter, cluster, problem.pool(), problem.calibration(), options, nullptr);
  changes.push_back(
      {"responses half as long (up to " + std::to_string(workload.response_limit) + " tokens)",
       step(with_shorter, cluster.device)});
  std::ranges::stable_sort(changes, [](const Change& a, const Change& b) {
    return a.step && (!b.step || *a.step < *b.step);
  });
  return changes;
}

Json to_json(const PlanReport& report, const Calibration& calibration) {
  const StepLatency& latency = report.best.latency;
  Json stages = Json::object(), intervals = Json::object(), classes = Json::object();
  for (const NodeLatency& node : latency.nodes) {
    stages[node.name] = node.predicted;
    intervals[node.name] = {node.estimate.low, node.estimate.high};
    classes[node.name] = Json::object();
    for (const auto& [op_class, time] : node.ideal) {
      classes[node.name][to_string(op_class)] =
          predicted_time(Work{{op_class, node.work.at(op_class)}}, calibration);
    }
  }
  Json memory = Json::array();
  for (const MemoryEntry& entry : report.memory.entries) {
    memory.push_back({{"device", entry.device},
                      {"role", to_string(entry.model_stage.role)},
                      {"stage", to_string(entry.model_stage.stage)},
                      {"component", entry.component},
                      {"bytes", entry.bytes},
                      {"resident", entry.resident}});
  }
  Json peak = Json::object();
  for (const auto& [device, bytes] : report.memory.peak) peak[to_string(device)] = bytes;
  Json runners_up = Json::array();
  for (const Rejection& rejection : report.runners_up) {
    runners_up.push_back(
        {{"plan", rejection.plan}, {"step_s", rejection.step}, {"why", rejection.why}});
  }
  Json layouts = Json::array();
  for (const auto& [layout, step] : report.layouts) {
    layouts.push_back(
        {{"tp", layout.tp}, {"pp", layout.pp}, {"step_s", step ? Json(*step) : Json()}});
  }
  return {{"plan", report.best.plan},
          {"step_s", latency.total},
          {"step_s_low", latency.estimate.low},
          {"step_s_high", latency.estimate.high},
          {"stages_s", stages},
          {"stages_interval_s", intervals},
          {"classes_s", classes},
          {"memory", memory},
          {"peak_bytes", peak},
          {"idle", report.idle},
          {"runners_up", runners_up},
          {"layouts", layouts}};
}

Json to_json(const std::vector<Change>& changes) {
  Json list = Json::array();
  for (const Change& change : changes) {
    list.push_back({{"what", change.what}, {"step_s", change.step ? Json(*change.step) : Json()}});
  }
  return list;
}

}  // namespace nereus
