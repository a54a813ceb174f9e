// Which of the interchangeable devices should play which part in a target plan.
#pragma once

#include <map>

#include "nereus/core/state/emu.h"

namespace nereus {

// The bytes of the model-stages' state that each device holds under `from` and needs under `to`,
// summed over devices. `schemas` has an entry for each model-stage that counts.
Bytes resident_bytes(const Plan& from, const Plan& to,
                     const std::map<ModelStage, StateSchema>& schemas);

// The same plan as `to` on other devices of `pool`: all devices are alike, those of one host stay
// on one host, and one renaming applies to all model-stages, so whatever shares bytes goes on
// sharing them. Hosts are matched greedily, devices within a pair of hosts optimally.
// resident_bytes() never falls; where it cannot grow, `to` comes back as it was. Deterministic.
// Requires the devices of `to` in `pool`.
Plan relabel_for_residency(const Plan& from, Plan to,
                           const std::map<ModelStage, StateSchema>& schemas,
                           const DevicePool& pool);

}  // namespace nereus
