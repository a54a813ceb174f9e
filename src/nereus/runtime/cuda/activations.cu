#include "nereus/runtime/cuda/vector.cuh"

namespace nereus::cuda {

namespace {

constexpr int kThreads = 256;

// One block along x per row; those along y share it.
template <class T>
__global__ void swiglu(const T* gate_up, int64_t width, T* out) {
  constexpr int N = kPerLoad<T>;
  const int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * N;
  if (i >= width) return;
  const T* gate = gate_up + int64_t{blockIdx.x} * 2 * width + i;
  const Floats<N> g = load<N>(gate), u = load<N>(gate + width);
  Floats<N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y[k] = u[k] * g[k] / (1 + __expf(-g[k]));
  store<N>(out + int64_t{blockIdx.x} * width + i, y);
}

template <class T>
__global__ void swiglu_backward(const T* grad, const T* gate_up, int64_t width, T* grad_gate_up) {
  constexpr int N = kPerLoad<T>;
  const int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * N;
  if (i >= width) return;
  const int64_t place = int64_t{blockIdx.x} * 2 * width + i;
  const Floats<N> g = load<N>(gate_up + place), u = load<N>(gate_up + place + width);
  const Floats<N> dy = load<N>(grad + int64_t{blockIdx.x} * width + i);
  Floats<N> dg, du;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float sigmoid = 1 / (1 + __expf(-g[k]));
    du[k] = dy[k] * g[k] * sigmoid;
    dg[k] = dy[k] * u[k] * sigmoid * (1 + g[k] * (1 - sigmoid));
  }
  store<N>(grad_gate_up + place, dg);
  store<N>(grad_gate_up + place + width, du);
}

// Copies a token's heads to where `place` says, the first `rotated` ones turned. A turn is of the
// pairs (x[i], x[i + half]) of a head by angles whose cosines and sines are given.
template <class T, class Place>
__device__ void turn_heads(const T* x, int heads, int rotated, int half, const T* cos, const T* sin,
                           float sign, const Place& place) {
  constexpr int N = kPerLoad<T>;
  const int per_head = half / N;
  for (int j = threadIdx.x; j < heads * per_head; j += blockDim.x) {
    const int head = j / per_head, i = j % per_head * N;
    const T* from = x + int64_t{head} * 2 * half + i;
    Floats<N> a = load<N>(from), b = load<N>(from + half);
    if (head < rotated) {
      const Floats<N> c = load<N>(cos + i), s = load<N>(sin + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float first = a[k];
        a[k] = first * c[k] - b[k] * s[k] * sign;
        b[k] = b[k] * c[k] + first * s[k] * sign;
      }
    }
    T* to = place(head) + i;
    store<N>(to, a);
    store<N>(to + half, b);
  }
}

template <class T>
__global__ void rope(RopeCall call) {
  const int64_t token = blockIdx.x;
  const int half = call.head_dim / 2;
  const int64_t angles = call.positions[token] * half;
  T* out = static_cast<T*>(call.y) + token * call.heads * call.head_dim;
  turn_heads(static_cast<const T*>(call.x) + token * call.stride, call.heads, call.rotated, half,
             static_cast<const T*>(call.cos) + angles, static_cast<const T*>(call.sin) + angles,
             call.inverse ? -1.0F : 1.0F, [&](int head) { return out + head * call.head_dim; });
}

template <class T>
__global__ void append_rotated(AppendCall call) {
  const int64_t row = blockIdx.x, position = call.lengths[row];
  const int d = call.head_dim, kv = call.kv_heads, queries = call.heads;
  const int64_t angles = position * (d / 2);
  T* q = static_cast<T*>(call.q) + row * queries * d;
  const auto in_cache = [&](void* cache, int head) {
    return static_cast<T*>(cache) + (slot_of(call.pages, row, position) * kv + head) * d;
  };
  turn_heads(static_cast<const T*>(call.qkv) + row * call.stride, queries + 2 * kv, queries + kv,
             d / 2, static_cast<const T*>(call.cos) + angles,
             static_cast<const T*>(call.sin) + angles, 1.0F, [&](int head) {
               if (head < queries) return q + head * d;
               head -= queries;
               return head < kv ? in_cache(call.keys, head) : in_cache(call.values, head - kv);
             });
}

}  // namespace

cudaError_t launch_swiglu(Element element, const void* gate_up, int64_t rows, int64_t width,
                          void* out, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  with_type(element, [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(rows, ceil_div(width, kThreads * kPerLoad<T>));
    swiglu<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(gate_up), width,
                                          static_cast<T*>(out));
  });
  return cudaGetLastError();
}

cudaError_t launch_swiglu_backward(Element element, const void* grad, const void* gate_up,
                                   int64_t rows, int64_t width, void* grad_gate_up,
                                   cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  with_type(element, [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(rows, ceil_div(width, kThreads * kPerLoad<T>));
    swiglu_backward<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(grad),
                                                   static_cast<const T*>(gate_up), width,
                                                   static_cast<T*>(grad_gate_up));
  });
  return cudaGetLastError();
}

cudaError_t launch_rope(const RopeCall& call, cudaStream_t stream) {
  if (call.tokens == 0) return cudaSuccess;
  with_type(call.element,
            [&](auto zero) { rope<decltype(zero)><<<call.tokens, kThreads, 0, stream>>>(call); });
  return cudaGetLastError();
}

cudaError_t launch_append_rotated(const AppendCall& call, cudaStream_t stream) {
  with_type(call.element, [&](auto zero) {
    append_rotated<decltype(zero)><<<call.rows, kThreads, 0, stream>>>(call);
  });
  return cudaGetLastError();
}

}  // namespace nereus::cuda
