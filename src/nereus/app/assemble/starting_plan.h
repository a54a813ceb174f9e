// The plan a job starts with: the user's, checked, or the planner's.
#pragma once

#include "nereus/app/config/config.h"
#include "nereus/core/controller/controller.h"

namespace nereus {

// config.plan placed on `pool`, or the fastest plan that fits. Throws Error: kInvalidInput if the
// configured plan does not suit models or devices or does not fit (bytes per device and component),
// kInfeasible if no plan fits.
Plan starting_plan(const PlanSetting& setting, const JobSpec& job, const Cluster& cluster,
                   const DevicePool& pool, const PlannerOptions& options);

// A plan from its JSON file. Throws Error(kInvalidInput) naming the file.
Plan read_plan(const std::filesystem::path& file);

}  // namespace nereus
