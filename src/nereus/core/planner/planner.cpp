#include "nereus/core/planner/planner.h"

#include <algorithm>
#include <iterator>

#include "nereus/core/base/text.h"
#include "nereus/core/planner/search.h"

namespace nereus {
namespace {

// How closely the capacity is found that would do.
constexpr double kPrecision = 1.02;

// The fastest plan for about the smallest capacity that suffices, and why it does not fit.
std::string closest_to_fitting(Problem& problem, const PlannerOptions& options) {
  const auto found = [&](Bytes usable) { return search(problem, search_options(options, usable)); };
  Bytes too_little = std::max(Bytes(1), usable_memory(problem.cluster().device, options.headroom));
  Bytes enough = too_little * 2;
  std::vector<Found> closest;
  while ((closest = found(enough)).empty()) {
    if (enough > kUnlimited) return "no layout suits the models and the devices";
    too_little = enough;
    enough = enough * 2;
  }
  while (enough > too_little * kPrecision) {
    const Bytes middle = (too_little + enough) * 0.5;
    std::vector<Found> plans = found(middle);
    (plans.empty() ? too_little : enough) = middle;
    if (!plans.empty()) closest = std::move(plans);
  }
  const Plan plan = problem.plan(closest.front());
  const std::vector<std::string> violations =
      memory_violations(problem.memory(plan), problem.cluster(), options.headroom);
  return "closest is\n" + to_string(plan) + join(violations, "\n");
}

}  // namespace

const std::vector<int>& allowed_micro_batches(const PlannerOptions& options, Role role) {
  const auto own = options.own_micro_batches.find(role);
  return own == options.own_micro_batches.end() ? options.micro_batches : own->second;
}

Expected<PlanChoice> choose_plan(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                                 const Calibration& calibration, const PlannerOptions& options,
                                 const Plan* current) {
  if (pool.empty()) return tl::unexpected(std::string("no device is available"));
  Problem problem(job, cluster, pool, calibration, options, current);
  return choose_plan(problem, options);
}

Expected<PlanChoice> choose_plan(Problem& problem, const PlannerOptions& options) {
  const Bytes usable = usable_memory(problem.cluster().device, options.headroom);
  const std::vector<Found> fitting = search(problem, search_options(options, usable));
  if (fitting.empty()) {
    return tl::unexpected("no plan fits " + std::to_string(problem.devices()) + " devices of " +
                          to_string(problem.cluster().device.memory) + ": " +
                          closest_to_fitting(problem, options));
  }
  PlanChoice choice{.best = problem.candidate(fitting.front()), .alternatives = {}};
  for (auto other = fitting.begin() + 1; other != fitting.end(); ++other) {
    choice.alternatives.push_back(problem.candidate(*other));
  }
  return choice;
}

}  // namespace nereus
