// The NVIDIA GPUs that this program can use; none in builds without CUDA.
#pragma once

#include "nereus/core/base/units.h"

namespace nereus::cuda {

int device_count();

// True while what the calling thread enqueues on its current stream goes into a graph.
bool is_capturing();

// What tensors may take of a device's memory, by PyTorch's caching allocator.
void limit_memory(int device, Bytes budget);

// Gets from the driver, in one piece, what PyTorch's caching allocator lacks of `bytes` for tensors
// on the calling thread's current stream: the driver takes about a millisecond each time that it is
// asked, whatever the size (bench/results/h200x2/driver_memory.txt). If there is not so much, it
// does nothing, and whoever needs the memory will learn it.
void reserve_memory(int device, Bytes bytes);

// What the driver still gives the allocator on a device. A graph's recording can get only that, not
// what the allocator keeps for other streams.
Bytes obtainable_memory(int device);
// Gives back to the driver what the allocator keeps unused, on all devices.
void release_unused_memory();

}  // namespace nereus::cuda
