#include <algorithm>

#include "nereus/runtime/cuda/kernels.h"

namespace nereus::cuda {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / φ
constexpr int kThreads = 256;
constexpr int64_t kElements = 16;  // of a thread, if there are enough

__device__ uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

__device__ uint64_t sum_of_block(uint64_t value) {
  __shared__ uint64_t parts[kThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_down_sync(~0U, value, lanes);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  if (threadIdx.x == 0) {
    for (uint64_t part : parts) value += part;
  }
  return value;
}

// Blocks along x share a row, those along y take turns with the rows.
template <class Bits>
__global__ void hash(const Bits* data, HashedBox box, int64_t rows, uint64_t* sum) {
  uint64_t own = 0;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    int64_t left = row;
    uint64_t first = box.first;
    for (int d = HashedBox::kDims - 1; d >= 0; --d) {
      first += left % box.rows[d] * box.strides[d];
      left /= box.rows[d];
    }
    const Bits* values = data + row * box.run;
    const int64_t step = int64_t{gridDim.x} * kThreads;
#pragma unroll 8
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < box.run; i += step) {
      own += mix(values[i] + (first + i) * kGolden);
    }
  }
  own = sum_of_block(own);
  if (threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), own);
}

}  // namespace

cudaError_t launch_hash(const void* data, int element_size, const HashedBox& box, uint64_t* sum,
                        cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 4096, kTile = kThreads * kElements;
  int64_t rows = 1;
  for (int64_t extent : box.rows) rows *= extent;
  if (rows * box.run == 0) return cudaSuccess;
  const int64_t across = std::min((box.run + kTile - 1) / kTile, kMostBlocks);
  const int64_t down = std::min(rows, std::max<int64_t>(1, kMostBlocks / across));
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  const auto launch = [&](const auto* values) {
    hash<<<grid, kThreads, 0, stream>>>(values, box, rows, sum);
  };
  switch (element_size) {
    case 2:
      launch(static_cast<const uint16_t*>(data));
      break;
    case 4:
      launch(static_cast<const uint32_t*>(data));
      break;
    default:
      launch(static_cast<const uint64_t*>(data));
  }
  return cudaGetLastError();
}

}  // namespace nereus::cuda
