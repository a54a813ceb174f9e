// How many units of a layout a pool holds.
#pragma once

#include "nereus/plan/plan.h"

namespace nereus {

// Tensor-parallel groups stay within a host; pipeline stages may span hosts.
int most_units(Layout layout, const DevicePool& pool);

// The most devices that one host of the pool has; 0 for an empty pool.
int largest_host(const DevicePool& pool);

}  // namespace nereus
