#include <algorithm>

#include "nereus/cuda/kernels.h"

namespace nereus::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
// Loads that a thread has under way: what another device's memory takes long to give must be asked
// for early. 64 blocks have 4 MiB under way then, several times what NVLink holds.
constexpr int kUnderWay = 8;
constexpr int64_t kMostBlocks = 64;

// A warp takes a row at a time.
__global__ void copy_rows(char* to, int64_t to_pitch, const char* from, int64_t from_pitch,
                          int64_t units, int64_t rows) {
  const int64_t lane = threadIdx.x % 32;
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < rows; row += step) {
    const auto* source = reinterpret_cast<const uint4*>(from + row * from_pitch);
    auto* target = reinterpret_cast<uint4*>(to + row * to_pitch);
    for (int64_t begin = lane; begin < units; begin += 32 * kUnderWay) {
      uint4 values[kUnderWay];
#pragma unroll
      for (int i = 0; i < kUnderWay; ++i) {
        if (begin + 32 * i < units) values[i] = source[begin + 32 * i];
      }
#pragma unroll
      for (int i = 0; i < kUnderWay; ++i) {
        if (begin + 32 * i < units) target[begin + 32 * i] = values[i];
      }
    }
  }
}

}  // namespace

cudaError_t launch_copy_rows(const RowCopy& copy, cudaStream_t stream) {
  if (copy.rows == 0 || copy.width == 0) return cudaSuccess;
  const int64_t blocks = std::min((copy.rows + kWarps - 1) / kWarps, kMostBlocks);
  copy_rows<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<char*>(copy.to), copy.to_pitch, static_cast<const char*>(copy.from),
      copy.from_pitch, copy.width / RowCopy::kUnit, copy.rows);
  return cudaGetLastError();
}

}  // namespace nereus::cuda
