// The setting of another framework beside our best plan: `nereus plan --compare`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nereus/app/compare/frameworks.h"
#include "nereus/core/planner/report.h"

namespace nereus {

// What is predicted of a setting on the cluster's devices.
struct Comparison {
  ForeignSetting setting;
  std::vector<std::string> job;         // what the setting changed of the config's job, "key=value"
  PlanReport predicted;                 // without runners-up and layouts
  std::vector<std::string> violations;  // empty: it fits
  std::optional<PlanReport> best;       // on as many devices, where there are more
};

// `best` is left open. Throws Error(kInvalidInput) if the setting does not suit devices or models.
Comparison predict_setting(ForeignSetting setting, std::vector<std::string> job_changes,
                           const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                           double headroom);

// The best plan on the first devices of the pool, as many as the setting takes; none if it takes
// all of them. Throws Error(kInfeasible) if no plan fits them.
std::optional<PlanReport> best_on_as_many(const ForeignSetting& setting, const JobSpec& job,
                                          const Cluster& cluster, const DevicePool& pool,
                                          const PlannerOptions& planner);

// Step by pass and peak memory of both, plans where they differ, and what became of the setting's
// keys. `best`: the best plan on all devices, which is compared if the setting takes as many.
std::string render_comparison(const Comparison& comparison, const PlanReport& best,
                              const Cluster& cluster);

// What the JSON of the best plan says of itself, and "framework", "ratio" (step of the setting to
// step of the best plan on as many devices), "best" (that plan and "step_s"), "fits", "violations",
// "job", "approximated", "ignored", "unknown".
Json to_json(const Comparison& comparison, const PlanReport& best);

}  // namespace nereus
