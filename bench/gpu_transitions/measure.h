// The measurements of nereus_gpu_transitions.
#pragma once

#include "gpu_common/state.h"
#include "nereus/core/base/json.h"

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

// Extend and Destroy, over and over, while both GPUs do nothing but multiply matrices, and while
// they do nothing but read memory.
std::vector<Json> measure_hidden(GpuState& state, ModelStage model_stage);

// The chain while both GPUs generate 64 × 64 tokens each with a model of the shape: what each
// transition, begun among the decode steps, adds to that stage. Throws as measure_chain() does.
std::vector<Json> measure_hidden_by_generation(GpuState& state, ModelStage model_stage,
                                               const std::string& shape, int repeats);

Json measure_communicators();

}  // namespace nereus::bench
