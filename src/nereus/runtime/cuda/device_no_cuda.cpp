#include "nereus/runtime/cuda/device.h"

namespace nereus::cuda {

int device_count() { return 0; }
bool is_capturing() { return false; }
void limit_memory(int, Bytes) {}
void reserve_memory(int, Bytes) {}
Bytes obtainable_memory(int) { return {}; }
void release_unused_memory() {}

}  // namespace nereus::cuda
