// A plan with its reasons: what it costs, why not others, and what would help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nereus/core/planner/problem.h"

namespace nereus {

struct Rejection {
  Plan plan;
  Seconds step;
  std::string why;  // "does not fit: device 0:1 needs …" or "slower by 12 %"
};

// The best step if one thing were different.
struct Change {
  std::string what;  // "twice the memory per device (282 GB)"
  Expected<Seconds> step;
};

// The best step with actor training under one tp × pp.
struct LayoutStep {
  Layout layout;
  std::optional<Seconds> step;  // none: it does not fit
};

struct PlanReport {
  Candidate best;
  MemoryPrediction memory;
  std::vector<DeviceId> idle;         // of the pool
  std::vector<Rejection> runners_up;  // the fastest that do not fit, then slower ones
  std::vector<LayoutStep> layouts;    // power-of-two tp × pp that the pool admits, and the best
};

Expected<PlanReport> report_plan(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
                                 const Calibration& calibration, const PlannerOptions& options);

// Of a problem whose candidates are there already.
Expected<PlanReport> report_plan(Problem& problem, const PlannerOptions& options);

// Twice the devices, twice the memory, half the responses: what helps most first.
std::vector<Change> what_would_help(const JobSpec& job, const Cluster& cluster,
                                    const DevicePool& pool, const Calibration& calibration,
                                    const PlannerOptions& options);
std::vector<Change> what_would_help(Problem& problem, PlannerOptions options);

// {"plan", "step_s", "step_s_low", "step_s_high", "stages_s", "stages_interval_s", "classes_s",
// "memory", "peak_bytes", "idle", "runners_up", "layouts"}: the JSON of `nereus plan --json`.
Json to_json(const PlanReport& report, const Calibration& calibration);
Json to_json(const std::vector<Change>& changes);

}  // namespace nereus
