// What is given from outside over the steps of a run: response-length limits and device supply.
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include "nereus/core/cluster/cluster.h"

namespace nereus {

// (first step, max_response_length), sorted by step, the first at 0.
struct LengthSchedule {
  std::vector<std::pair<int, int64_t>> limits;
  int64_t at(int step) const;
  int64_t longest() const;
};

// (first step, devices there), sorted by step, the first at 0. Devices that leave do so with
// notice: their state can still be read while the transition at the boundary before that step runs.
struct SupplySchedule {
  std::vector<std::pair<int, DevicePool>> pools;
  DevicePool at(int step) const;
};

// All devices, always.
SupplySchedule constant_supply(const Cluster& cluster);
// Entries (first step, number of devices): the cluster's first n devices.
// Throws Error(kInvalidInput) for steps that do not increase from 0 or more devices than there are.
SupplySchedule supply_of_counts(const Cluster& cluster,
                                const std::vector<std::pair<int, int>>& counts);
// A CSV "step,devices" (header line optional, # comments). Same errors, with the line number.
SupplySchedule read_supply_trace(const Cluster& cluster, const std::filesystem::path& file);

}  // namespace nereus
