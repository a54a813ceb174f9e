#include "nereus/runtime/cuda/vector.cuh"

namespace nereus::cuda {

namespace {

constexpr int kThreads = 512;

// The sum of `own` over the block, in all threads.
__device__ float block_sum(float own) {
  __shared__ float parts[kThreads / 32];
  const auto over_lanes = [](float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0U, x, lanes);
    return x;
  };
  own = over_lanes(own);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return over_lanes(lane < kThreads / 32 ? parts[lane] : 0);
}

// A block per row; a thread reads in the end what it wrote before.
template <class T>
__global__ void add_rms_norm(AddNormCall call) {
  constexpr int N = kPerLoad<T>;
  const int64_t begin = int64_t{blockIdx.x} * call.width;
  const T* x = static_cast<const T*>(call.x) + begin;
  const T* y = static_cast<const T*>(call.y) + begin;
  const T* weight = static_cast<const T*>(call.weight);
  T* sum = static_cast<T*>(call.sum) + begin;
  T* normed = static_cast<T*>(call.normed) + begin;
  float squares = 0;
  for (int64_t i = int64_t{threadIdx.x} * N; i < call.width; i += kThreads * N) {
    const Floats<N> a = load<N>(x + i), b = load<N>(y + i);
    Floats<N> total;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float rounded = to_float(from_float<T>(a[k] + b[k]));
      total[k] = rounded;
      squares += rounded * rounded;
    }
    store<N>(sum + i, total);
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(call.width) + call.eps);
  for (int64_t i = int64_t{threadIdx.x} * N; i < call.width; i += kThreads * N) {
    const Floats<N> total = load<N>(sum + i), w = load<N>(weight + i);
    Floats<N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out[k] = total[k] * scale * w[k];
    store<N>(normed + i, out);
  }
}

}  // namespace

cudaError_t launch_add_rms_norm(const AddNormCall& call, cudaStream_t stream) {
  if (call.rows == 0) return cudaSuccess;
  with_type(call.element, [&](auto zero) {
    add_rms_norm<decltype(zero)><<<static_cast<unsigned>(call.rows), kThreads, 0, stream>>>(call);
  });
  return cudaGetLastError();
}

}  // namespace nereus::cuda
