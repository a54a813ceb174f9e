// What `nereus plan` shows.
#pragma once

#include <string>
#include <vector>

#include "nereus/core/planner/report.h"

namespace nereus {

// Plan, step by pass with intervals, memory by groups of equal devices, runners-up, what would
// help.
std::string render_report(const PlanReport& report, const std::vector<Change>& changes,
                          const Cluster& cluster, const Calibration& calibration);
std::string render_changes(const std::vector<Change>& changes, std::optional<Seconds> now);

// An SVG image: the step with actor training under each tp × pp, coloured from best (light) to
// slowest (dark); grey where nothing fits.
std::string render_heat_map(const std::vector<LayoutStep>& layouts, const std::string& title);

}  // namespace nereus
