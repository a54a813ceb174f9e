// Tables for the terminal.
#pragma once

#include <string>
#include <vector>

#include "nereus/cost/memory.h"
#include "nereus/cost/step_latency.h"

namespace nereus {

// Columns padded to their widest cell; the first row is the heading.
std::string render_table(const std::vector<std::vector<std::string>>& rows);

// Predicted peak memory: a row per device, a column per component (the largest of its passes for
// transient ones), then peak and capacity.
std::string render_memory(const MemoryPrediction& prediction, const Cluster& cluster);

// Predicted step time: a row per pass, with the seconds of each operation class.
std::string render_latency(const StepLatency& latency, const Calibration& calibration);

}  // namespace nereus
