// What the devices of a host compute on.
#pragma once

#include <string>
#include <vector>

#include "nereus/core/cluster/device.h"

namespace nereus {

// Threads of the CPU, or GPUs. Devices may share a GPU: like those of the CPU they are virtual
// then.
struct Backend {
  std::vector<int> gpus;  // device i of a host computes on cuda:gpus[i]; empty: on the CPU

  bool is_cpu() const { return gpus.empty(); }
  // Throws Error(kInternal) for a device that has no GPU.
  int gpu_of(DeviceId device) const;
  // How many devices compute on that device's GPU.
  int sharing(DeviceId device) const;
  bool operator==(const Backend&) const = default;
};

// "cpu" or "cuda:0,1". parse_backend throws Error(kInvalidInput) for anything else.
std::string to_string(const Backend& backend);
Backend parse_backend(const std::string& text);

}  // namespace nereus
