// How large a cluster may be that is planned for.
#pragma once

namespace nereus {

// Devices in all, and what counts them (hosts, tp, pp, dp …): sixteen times the largest cluster of
// the paper. Products of two are checked in 64 bits.
inline constexpr int kMostDevices = 16'384;

}  // namespace nereus
