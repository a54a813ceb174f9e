#include "nereus/runtime/cuda/softmax.cuh"

namespace nereus::cuda {

namespace {

template <int N, class T>
__global__ void softmax_sums(const T* logits, SoftmaxCall call, float* out, int64_t stride) {
  const int64_t row = blockIdx.x;
  const T* own = logits + row * call.size;
  const SoftmaxSums sums = sums_of_row<N>(own, call.size, 1 / call.temperature);
  if (threadIdx.x != 0) return;
  const int64_t column = call.columns[row];
  out[row] = sums.exp;
  out[stride + row] = column < 0 ? 0 : to_float(own[column]) / call.temperature;
  out[2 * stride + row] = sums.weighted;
  out[3 * stride + row] = sums.max;
}

// d log p_target / dx = one-hot - p;  dH / dx = -p (log p + H). Blocks along y share a row.
template <int N, class T>
__global__ void softmax_backward(T* logits, SoftmaxCall call, SoftmaxGradient gradient) {
  const int64_t row = blockIdx.x;
  const int64_t begin = (int64_t{blockIdx.y} * kRowThreads + threadIdx.x) * N;
  if (begin >= call.size) return;
  T* place = logits + row * call.size + begin;
  const int64_t target = call.columns[row] - begin;
  const float scale = 1 / call.temperature, log_z = gradient.log_z[row];
  const float of_log_prob = gradient.grad_log_probs[row], of_entropy = gradient.grad_entropy[row];
  const float entropy = gradient.entropy[row];
  Floats<N> x = load<N>(place);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float log_p = x[k] * scale - log_z;
    const float slope = of_log_prob + of_entropy * (log_p + entropy);
    x[k] = ((k == target ? of_log_prob : 0.0F) - __expf(log_p) * slope) * scale;
  }
  store<N>(place, x);
}

// Calls f with logits of the right type and the number of elements that may be loaded at once.
template <class F>
void dispatch(const SoftmaxCall& call, const F& f) {
  with_type(call.element, [&](auto zero) {
    using T = decltype(zero);
    if (call.size % kPerLoad<T> == 0) {
      f(static_cast<T*>(call.logits), std::integral_constant<int, kPerLoad<T>>());
    } else {
      f(static_cast<T*>(call.logits), std::integral_constant<int, 1>());
    }
  });
}

}  // namespace

cudaError_t launch_softmax_sums(const SoftmaxCall& call, float* sums, int64_t sums_stride,
                                cudaStream_t stream) {
  if (call.rows == 0) return cudaSuccess;
  dispatch(call, [&](auto* logits, auto width) {
    softmax_sums<width.value>
        <<<call.rows, kRowThreads, 0, stream>>>(logits, call, sums, sums_stride);
  });
  return cudaGetLastError();
}

cudaError_t launch_softmax_backward(const SoftmaxCall& call, const SoftmaxGradient& gradient,
                                    cudaStream_t stream) {
  if (call.rows == 0) return cudaSuccess;
  dispatch(call, [&](auto* logits, auto width) {
    const dim3 grid(call.rows, ceil_div(call.size, kRowThreads * width.value));
    softmax_backward<width.value><<<grid, kRowThreads, 0, stream>>>(logits, call, gradient);
  });
  return cudaGetLastError();
}

}  // namespace nereus::cuda
