#include "nereus/planner/planner.h"

#include <limits>

#include "nereus/base/text.h"
#include "nereus/planner/search.h"

namespace nereus {
namespace {

// The next larger capacity to try when looking for what is closest to fitting.
constexpr double kCapacityStep = 1.05;

std::string slower_by(Seconds time, Seconds best) {
  return "slower by " + format_number(100 * (time / best - 1), "%.1f") + " %";
}

// The fastest plan for the smallest capacity (in steps) that suffices, and why it does not fit.
std::string closest_to_fitting(Search& search, const JobSpec& job, const Cluster& cluster,
                               const Calibration& calibration, double headroom) {
  Bytes usable = cluster.device.memory * (1 - headroom);
  std::vector<Found> found;
  const Bytes largest(std::numeric_limits<int64_t>::max() / 4);
  while (found.empty() && usable < largest) {
    usable = usable * kCapacityStep + Bytes(1);
    found = search.run(usable);
  }
  if (found.empty()) return "no layout suits the models and the devices";
  const MemoryPrediction memory = predict_memory(found.front().plan, job, calibration);
  return "closest is\n" + to_string(found.front().plan) +
         join(memory_violations(memory, cluster, headroom), "\n");
}

}  // namespace

Expected<PlanChoice> choose_plan(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                                 const Calibration& calibration, const PlannerOptions& options,
                                 const Plan* current) {
  if (pool.empty()) return tl::unexpected(std::string("no device is available"));
  Search search(job, cluster, pool, calibration, options, current);
  const std::vector<Found> fitting = search.run(cluster.device.memory * (1 - options.headroom));
  if (fitting.empty()) {
    return tl::unexpected("no plan fits " + std::to_string(pool.size()) + " devices of " +
                          to_string(cluster.device.memory) + ": " +
                          closest_to_fitting(search, job, cluster, calibration, options.headroom));
  }

  PlanChoice choice;
  const auto candidate = [&](const Plan& plan) {
    verify(plan, pool, job);
    return Candidate{plan, predict_step(plan, job, cluster, calibration),
                     predict_memory(plan, job, calibration)};
  };
  choice.best = candidate(fitting.front().plan);
  for (const Found& unlimited : search.run(Bytes(std::numeric_limits<int64_t>::max()))) {
    const std::vector<std::string> violations = memory_violations(
        predict_memory(unlimited.plan, job, calibration), cluster, options.headroom);
    if (violations.empty()) break;  // from here on, fitting plans are among the fastest
    choice.rejected.push_back(
        {unlimited.plan, unlimited.total, "does not fit: " + violations.front()});
  }
  for (size_t i = 1; i < fitting.size(); ++i) {
    const auto& [plan, total] = fitting[i];
    choice.alternatives.push_back(candidate(plan));
    choice.rejected.push_back({plan, total, slower_by(total, choice.best.latency.total)});
  }
  return choice;
}

}  // namespace nereus
