#include "nereus/runtime/cuda/device.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <iterator>

namespace nereus::cuda {

int device_count() { return c10::cuda::device_count(); }

bool is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

void limit_memory(int device, Bytes budget) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard on(index);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const double fraction = static_cast<double>(budget.count()) / static_cast<double>(total);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(1.0, fraction), index);
}

void reserve_memory(int device, Bytes bytes) {
  constexpr int64_t kTooLittle = int64_t{64} << 20;
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard on(index);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(index);
  int64_t lacking = bytes.count();
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments) {
    if (segment.device != index || segment.stream != stream || !segment.is_large) continue;
    if (segment.owner_private_pool_id != c10::MempoolId_t{0, 0}) continue;
    lacking -= static_cast<int64_t>(segment.total_size - segment.active_size);
  }
  if (lacking < kTooLittle) return;
  try {
    c10::cuda::CUDACachingAllocator::get()->allocate(static_cast<size_t>(lacking));  // and cached
  } catch (const c10::OutOfMemoryError&) {
    // Whoever needs it may still find enough in smaller pieces.
  }
}

Bytes obtainable_memory(int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard on(index);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const double limit =
      c10::cuda::CUDACachingAllocator::getMemoryFraction(index) * static_cast<double>(total);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index);
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const int64_t allowed = static_cast<int64_t>(limit) - stats.reserved_bytes[kAll].current;
  return Bytes(std::min(static_cast<int64_t>(free), allowed));
}

void release_unused_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

}  // namespace nereus::cuda
