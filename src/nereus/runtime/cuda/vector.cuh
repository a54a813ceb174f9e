// Loads and stores of several elements at once, with arithmetic in fp32, for the kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "nereus/runtime/cuda/kernels.h"

namespace nereus::cuda {

// Where a row's token lies among all tokens of the blocks.
__device__ inline int64_t slot_of(const Pages& pages, int64_t row, int64_t token) {
  const int64_t block = __ldg(pages.tables + row * pages.width + (token >> pages.shift));
  return (block << pages.shift) + (token & ((int64_t{1} << pages.shift) - 1));
}

template <class T>
inline constexpr int kPerLoad = 16 / sizeof(T);  // the widest load there is

template <int N>
struct Floats {
  float values[N];
  __device__ float& operator[](int i) { return values[i]; }
  __device__ float operator[](int i) const { return values[i]; }
};

template <class T, int N>
struct alignas(N * sizeof(T)) Elements {
  T values[N];
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ T from_float(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return T(x);
  }
}

// N elements from an address that is a multiple of their size.
template <int N, class T>
__device__ Floats<N> load(const T* from) {
  const auto elements = *reinterpret_cast<const Elements<T, N>*>(from);
  Floats<N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = to_float(elements.values[i]);
  return out;
}

template <int N, class T>
__device__ void store(T* to, const Floats<N>& from) {
  Elements<T, N> elements;
#pragma unroll
  for (int i = 0; i < N; ++i) elements.values[i] = from_float<T>(from[i]);
  *reinterpret_cast<Elements<T, N>*>(to) = elements;
}

// Calls f with a value of the element type.
template <class F>
void with_type(Element element, const F& f) {
  switch (element) {
    case Element::kFloat:
      return f(float{});
    case Element::kBFloat16:
      return f(__nv_bfloat16{});
    case Element::kHalf:
      return f(__half{});
  }
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace nereus::cuda
