// Collectives by NCCL between the GPUs of one host, one thread each.
#pragma once

#include <memory>
#include <vector>

#include "nereus/runtime/comm/communicator.h"

namespace nereus {

// How long a collective may stay unfinished before the group is aborted: longer than any pass that
// a rank may still be busy with when the others already wait.
inline constexpr Seconds kNcclPatience(600);

// The handles of a new group, rank i on cuda:devices[i], connected and warmed up (40 ms, half a
// second for the first group of a process). Tensors of collectives are on their rank's device;
// messages are copied between the devices without NCCL. A watchdog aborts the group when a
// collective has not ended after `patience`, with an error that names the operation, its bytes and
// how far each rank has come. Destroying a group takes half a second. Throws Error(kInternal) with
// NCCL's reason, or if this build has no CUDA.
std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(
    const std::vector<int>& devices, Seconds patience = kNcclPatience);

}  // namespace nereus
