// Sums over a row of logits by one block, for the kernels.
#pragma once

#include <cfloat>

#include "nereus/runtime/cuda/vector.cuh"

namespace nereus::cuda {

inline constexpr int kRowThreads = 512;
inline constexpr float kLowest = -FLT_MAX / 4;  // below all logits, yet differences are finite

// Of some numbers x: their maximum, Σ exp(x - max) and Σ exp(x - max) · (x - max).
struct SoftmaxSums {
  float max, exp, weighted;

  __device__ void raise_max(float to) {
    const float shift = max - to, scale = __expf(shift);
    weighted = scale * (weighted + shift * exp);
    exp *= scale;
    max = to;
  }
};
__device__ inline SoftmaxSums no_sums() { return {kLowest, 0, 0}; }

__device__ inline SoftmaxSums merged(SoftmaxSums a, SoftmaxSums b) {
  const float max = fmaxf(a.max, b.max);
  a.raise_max(max);
  b.raise_max(max);
  return {max, a.exp + b.exp, a.weighted + b.weighted};
}

// Of x = row · scale, the same in all threads of the block.
template <int N, class T>
__device__ SoftmaxSums sums_of_row(const T* row, int64_t size, float scale) {
  SoftmaxSums own = no_sums();
  for (int64_t i = int64_t{threadIdx.x} * N; i < size; i += kRowThreads * N) {
    Floats<N> x = load<N>(row + i);
    float max = own.max;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] *= scale;
      max = fmaxf(max, x[k]);
    }
    own.raise_max(max);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float shifted = x[k] - max, exp = __expf(shifted);
      own.exp += exp;
      own.weighted += exp * fmaxf(shifted, kLowest);  // 0 for -inf
    }
  }
  const auto over_lanes = [](SoftmaxSums sums) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const SoftmaxSums other{__shfl_xor_sync(~0U, sums.max, lanes),
                              __shfl_xor_sync(~0U, sums.exp, lanes),
                              __shfl_xor_sync(~0U, sums.weighted, lanes)};
      sums = merged(sums, other);
    }
    return sums;
  };
  __shared__ SoftmaxSums parts[kRowThreads / 32];
  own = over_lanes(own);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return over_lanes(lane < kRowThreads / 32 ? parts[lane] : no_sums());
}

}  // namespace nereus::cuda
