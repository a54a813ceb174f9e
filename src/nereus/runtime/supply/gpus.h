// The GPUs of this host, asked of the driver: without PyTorch, so that planning starts at once.
#pragma once

#include <string>
#include <vector>

#include "nereus/core/base/units.h"

namespace nereus {

struct Gpu {
  std::string name;  // for example "NVIDIA H200"
  Bytes memory;
  bool operator==(const Gpu&) const = default;
};

// The NVIDIA GPUs that this process may use (CUDA_VISIBLE_DEVICES counts), in CUDA's order. None
// where there is no driver, and in builds with a PyTorch for the CPU, which cannot compute on them.
// The first call loads and initialises the driver, which takes some tenths of a second.
std::vector<Gpu> visible_gpus();

}  // namespace nereus
