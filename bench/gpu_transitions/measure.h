// The measurements of nereus_gpu_transitions.
#pragma once

#include "gpu_common/state.h"
#include "nereus/base/json.h"

namespace nereus::bench {

// What peer copies of 4 GiB reach: one way, and each way when both run.
Json measure_link(GpuState& state);

// One row per kind of transition, from a chain of them that begins and ends with one unit on GPU 0.
// `cold`: the allocator's cache is emptied before each, so that all memory comes from the driver.
// Throws Error(kInternal) if a bit of the state changes.
std::vector<Json> measure_chain(GpuState& state, ModelStage model_stage, int repeats, bool cold,
                                double limit_gb_per_s);

// Every tensor of the state broadcast from GPU 0 to GPU 1 by NCCL, one after the other.
Json measure_broadcast(GpuState& state, ModelStage model_stage);

// Extend and Destroy while both GPUs multiply matrices, and while they read memory.
Json measure_hidden(GpuState& state, ModelStage model_stage);

Json measure_communicators();

}  // namespace nereus::bench
