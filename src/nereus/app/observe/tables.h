// Tables for the terminal.
#pragma once

#include <string>
#include <vector>

#include "nereus/core/cost/memory.h"

namespace nereus {

// Columns padded to their widest cell; the first row is the heading.
std::string render_table(const std::vector<std::vector<std::string>>& rows);

// "0:0 … 3:7 (32)", or the names of a few.
std::string span_of(const std::vector<DeviceId>& devices);

// A model-stage's part of a plan as to_string() has it, without the list of devices where there are
// many.
std::string short_stage(const StagePlan& stage);

// Predicted peak memory: a row for all devices that hold the same, a column per component (the
// largest of its passes for transient ones), then peak and capacity.
std::string render_memory(const MemoryPrediction& memory, const Cluster& cluster);

}  // namespace nereus
