// The NVIDIA GPUs that this program can use; none in builds without CUDA.
#pragma once

#include <string>
#include <vector>

#include "nereus/base/units.h"

namespace nereus::cuda {

int device_count();

struct Gpu {
  std::string name;  // for example "NVIDIA H200"
  Bytes memory;
};
std::vector<Gpu> gpus();

// True while what the calling thread enqueues on its current stream goes into a graph.
bool is_capturing();

// What tensors may take of a device's memory, by PyTorch's caching allocator.
void limit_memory(int device, Bytes budget);

}  // namespace nereus::cuda
