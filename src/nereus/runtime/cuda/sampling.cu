#include "nereus/runtime/cuda/softmax.cuh"

namespace nereus::cuda {

namespace {

constexpr int kLanes = 32, kWarps = kRowThreads / kLanes;
constexpr int kSegments = 1024;  // at most, of a row; a multiple of kLanes

// base/random.h, uniform().
__device__ double uniform(uint64_t seed, uint64_t stream, uint64_t position) {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto high = [](uint64_t value) { return static_cast<uint32_t>(value >> 32); };
  uint32_t c0 = low(stream), c1 = high(stream), c2 = low(position), c3 = high(position);
  uint32_t key0 = low(seed), key1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0, product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = high(product1) ^ c1 ^ key0;
    c1 = low(product1);
    c2 = high(product0) ^ c3 ^ key1;
    c3 = low(product0);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return static_cast<double>(((uint64_t{c0} << 32) | c1) >> 11) * 0x1p-53;
}

// Σ over this lane and those before it.
__device__ double inclusive_sum(double value) {
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const double other = __shfl_up_sync(~0U, value, distance);
    if (static_cast<int>(threadIdx.x % kLanes) >= distance) value += other;
  }
  return value;
}

__device__ double over_lanes(double value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0U, value, lanes);
  return value;
}

// The row's probabilities, up to a factor, in segments of `rounds` times one load by each lane.
template <int N, class T>
struct Row {
  const T* logits;
  int64_t size;
  float scale, max;
  int rounds;

  __device__ int64_t begin(int segment, int round) const {
    return ((int64_t{segment} * rounds + round) * kLanes + threadIdx.x % kLanes) * N;
  }
  __device__ Floats<N> probabilities(int64_t begin) const {
    Floats<N> p;
    if (begin < size) p = load<N>(logits + begin);
#pragma unroll
    for (int k = 0; k < N; ++k) p[k] = begin < size ? __expf(p[k] * scale - max) : 0;
    return p;
  }
  __device__ static double sum(const Floats<N>& p) {
    double sum = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) sum += p[k];
    return sum;
  }
};

// One warp: the first element of a segment at which `before` and the sum from the segment's begin
// exceed `target`; should rounding hide it, the segment's last possible one.
template <int N, class T>
__device__ int64_t find_in_segment(const Row<N, T>& row, int segment, double before,
                                   double target) {
  int64_t last = 0;
  for (int round = 0; round < row.rounds; ++round) {
    const int64_t begin = row.begin(segment, round);
    const Floats<N> p = row.probabilities(begin);
    const double own = row.sum(p), until = before + inclusive_sum(own);
    double running = until - own;
    int64_t found = -1;
    for (int k = 0; k < N; ++k) {
      if (p[k] == 0) continue;
      last = begin + k;
      running += p[k];
      if (found < 0 && running > target) found = last;
    }
    const bool exceeds = own > 0 && until > target;
    if (exceeds && found < 0) found = last;
    const unsigned hits = __ballot_sync(~0U, exceeds);
    if (hits != 0) return __shfl_sync(~0U, found, __ffs(hits) - 1);
    before = __shfl_sync(~0U, until, kLanes - 1);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const int64_t other = __shfl_xor_sync(~0U, last, lanes);
    if (other > last) last = other;
  }
  return last;
}

// Inverse CDF: the first token at which the cumulated probability exceeds u of the total. All
// threads call it, those of the first warp get the result.
template <int N, class T>
__device__ int64_t inverse_cdf(const Row<N, T>& row, double u) {
  __shared__ double sums[kSegments];
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  for (int segment = warp; segment < kSegments; segment += kWarps) {
    double sum = 0;
    if (row.begin(segment, 0) - lane * N < row.size) {
      for (int round = 0; round < row.rounds; ++round) {
        sum += row.sum(row.probabilities(row.begin(segment, round)));
      }
      sum = over_lanes(sum);
    }
    if (lane == 0) sums[segment] = sum;
  }
  __syncthreads();
  if (warp != 0) return 0;
  // Each lane stands for a run of segments.
  constexpr int kRun = kSegments / kLanes;
  double own = 0;
  for (int i = 0; i < kRun; ++i) own += sums[lane * kRun + i];
  const double until = inclusive_sum(own);
  const double target = u * __shfl_sync(~0U, until, kLanes - 1);
  const unsigned hits = __ballot_sync(~0U, until > target);
  const int run = hits != 0 ? __ffs(hits) - 1 : kLanes - 1;
  double before = __shfl_sync(~0U, until - own, run);
  int segment = run * kRun, last = segment;
  double before_last = before;
  for (const int end = segment + kRun; segment < end; ++segment) {
    if (sums[segment] == 0) continue;
    last = segment;
    before_last = before;
    before += sums[segment];
    if (before > target) break;
  }
  return find_in_segment(row, last, before_last, target);
}

// The lowest index of the largest logit, in all threads. Not of scaled logits: rounding may make
// two of them equal.
template <int N, class T>
__device__ int64_t first_of_largest(const T* logits, int64_t size) {
  const float max = sums_of_row<N>(logits, size, 1).max;
  __shared__ unsigned long long first;
  if (threadIdx.x == 0) first = size;
  __syncthreads();
  for (int64_t i = int64_t{threadIdx.x} * N; i < size; i += kRowThreads * N) {
    const Floats<N> x = load<N>(logits + i);
    for (int k = N - 1; k >= 0; --k) {
      if (x[k] == max) atomicMin(&first, static_cast<unsigned long long>(i + k));
    }
  }
  __syncthreads();
  return static_cast<int64_t>(first);
}

template <int N, class T>
__global__ void draw(DrawCall call) {
  const int64_t row = blockIdx.x;
  const T* logits = static_cast<const T*>(call.logits) + row * call.vocab;
  const T* allowed = static_cast<const T*>(call.allowed) + row * call.vocab;
  int64_t token = 0;
  if (call.greedy) token = first_of_largest<N>(allowed, call.vocab);
  const float scale = 1 / call.temperature;
  const SoftmaxSums sums = sums_of_row<N>(logits, call.vocab, scale);
  if (!call.greedy) {
    float max = sums.max;  // of what is allowed, which may be far below what is not
    if (allowed != logits) {
      __syncthreads();  // the sums' shared memory serves again
      max = sums_of_row<N>(allowed, call.vocab, scale).max;
    }
    const int rounds =
        static_cast<int>((call.vocab + kSegments * kLanes * N - 1) / (kSegments * kLanes * N));
    const double u = uniform(call.seed, call.sample_ids[row], call.positions[row]);
    token = inverse_cdf(Row<N, T>{allowed, call.vocab, scale, max, rounds}, u);
  }
  if (threadIdx.x != 0) return;
  if (token < 0 || token >= call.vocab) token = 0;  // of NaN
  call.tokens[row] = static_cast<double>(token);
  call.log_probs[row] = to_float(logits[token]) * scale - sums.max - log(double{sums.exp});
}

}  // namespace

cudaError_t launch_draw(const DrawCall& call, cudaStream_t stream) {
  with_type(call.element, [&](auto zero) {
    using T = decltype(zero);
    if (call.vocab % kPerLoad<T> == 0) {
      draw<kPerLoad<T>, T><<<call.rows, kRowThreads, 0, stream>>>(call);
    } else {
      draw<1, T><<<call.rows, kRowThreads, 0, stream>>>(call);
    }
  });
  return cudaGetLastError();
}

}  // namespace nereus::cuda
