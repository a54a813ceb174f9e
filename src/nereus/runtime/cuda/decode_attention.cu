#include <algorithm>
#include <cmath>

#include "nereus/runtime/cuda/decode_attention.cuh"

namespace nereus::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 4;                    // threads that share one key
constexpr int kKeys = kThreads / kLanes;     // keys that a block looks at side by side
constexpr int kAtOnce = 4;                   // keys that a thread loads before it computes
constexpr int kTile = kKeys * kAtOnce;       // keys whose scores exist at a time
constexpr int kAlignment = 32;               // of the widest store to shared memory
constexpr int64_t kFewestKeys = 256;         // that are worth a block of their own
constexpr int kBlocksPerMultiprocessor = 2;  // that run side by side

// Of G query heads over some keys: softmax's maxima and sums, and the weighted sums of values.
template <class T, int D, int G>
class Attention {
 public:
  static constexpr int N = kPerLoad<T>;
  static constexpr int kChunks = D / N;               // loads that make a key or a value
  static constexpr int kValues = kThreads / kChunks;  // values that a block looks at side by side

  struct Shared {
    alignas(kAlignment) float q[G][D];
    float scores[kTile][G];
    float max[G], sum[G], rescale[G];
    alignas(kAlignment) float parts[kValues][G][D];
  };

  // `keys` and `values` of one KV head, whose neighbours lie `stride` elements apart.
  __device__ Attention(Shared& shared, const T* keys, const T* values, int64_t stride, Pages pages,
                       int64_t row)
      : shared_(shared), keys_(keys), values_(values), stride_(stride), pages_(pages), row_(row) {
#pragma unroll
    for (int g = 0; g < G; ++g) {
#pragma unroll
      for (int k = 0; k < N; ++k) acc_[g][k] = 0;
    }
    if (threadIdx.x < G) {
      shared_.max[threadIdx.x] = -INFINITY;
      shared_.sum[threadIdx.x] = 0;
    }
    __syncthreads();
  }

  __device__ void add_keys(int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; tile += kTile) {
      score(tile, end);
      __syncthreads();
      weigh();
      __syncthreads();
      add_values(tile, static_cast<int>(min(int64_t{kTile}, end - tile)));
      __syncthreads();
    }
  }

  // Adds up what the threads have; afterwards result(g, d) is there for all of them.
  __device__ void finish() {
    if (value_lane() < kValues) {
#pragma unroll
      for (int g = 0; g < G; ++g) {
        store<N>(&shared_.parts[value_lane()][g][chunk() * N], acc_[g]);
      }
    }
    __syncthreads();
  }
  __device__ float result(int g, int d) const {
    float sum = 0;
    for (int part = 0; part < kValues; ++part) sum += shared_.parts[part][g][d];
    return sum;
  }

 private:
  __device__ static int chunk() { return threadIdx.x % kChunks; }
  __device__ static int value_lane() { return threadIdx.x / kChunks; }

  __device__ void score(int64_t tile, int64_t end) {
    const int lane = threadIdx.x % kLanes, slot = threadIdx.x / kLanes;
    float dot[kAtOnce][G] = {};
    int64_t place[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) place[u] = place_of(min(tile + u * kKeys + slot, end - 1));
#pragma unroll
    for (int c = 0; c < kChunks / kLanes; ++c) {
      const int at = (c * kLanes + lane) * N;
      Floats<N> key[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        key[u] = load<N>(keys_ + place[u] + at);
      }
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const Floats<N> q = load_floats(&shared_.q[g][at]);
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
          for (int k = 0; k < N; ++k) dot[u][g] += q[k] * key[u][k];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int key = u * kKeys + slot;
#pragma unroll
      for (int g = 0; g < G; ++g) {
        float sum = dot[u][g];
        for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
          sum += __shfl_xor_sync(~0U, sum, lanes);
        }
        if (lane == 0) shared_.scores[key][g] = tile + key < end ? sum : -INFINITY;
      }
    }
  }

  // Scores become weights, with respect to the largest score so far. A warp per query head.
  __device__ void weigh() {
    const int lane = threadIdx.x % 32;
    for (int g = threadIdx.x / 32; g < G; g += kThreads / 32) {
      const float before = shared_.max[g];
      float max = before, sum = 0;
      for (int key = lane; key < kTile; key += 32) max = fmaxf(max, shared_.scores[key][g]);
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        max = fmaxf(max, __shfl_xor_sync(~0U, max, lanes));
      }
      for (int key = lane; key < kTile; key += 32) {
        const float weight = exp2f(shared_.scores[key][g] - max);
        shared_.scores[key][g] = weight;
        sum += weight;
      }
      for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
      if (lane != 0) continue;
      const float rescale = exp2f(before - max);
      shared_.rescale[g] = rescale;
      shared_.sum[g] = shared_.sum[g] * rescale + sum;
      shared_.max[g] = max;
    }
  }

  __device__ void add_values(int64_t tile, int count) {
    if (value_lane() >= kValues) return;
#pragma unroll
    for (int g = 0; g < G; ++g) {
#pragma unroll
      for (int k = 0; k < N; ++k) acc_[g][k] *= shared_.rescale[g];
    }
    const T* from = values_ + chunk() * N;
#pragma unroll 8
    for (int key = value_lane(); key < count; key += kValues) {
      const Floats<N> value = load<N>(from + place_of(tile + key));
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const float weight = shared_.scores[key][g];
#pragma unroll
        for (int k = 0; k < N; ++k) acc_[g][k] += weight * value[k];
      }
    }
  }

  __device__ static Floats<N> load_floats(const float* from) {
    Floats<N> out;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      out[i] = four.x;
      out[i + 1] = four.y;
      out[i + 2] = four.z;
      out[i + 3] = four.w;
    }
    return out;
  }

  __device__ int64_t place_of(int64_t key) const { return slot_of(pages_, row_, key) * stride_; }

  Shared& shared_;
  const T* keys_;
  const T* values_;
  int64_t stride_;
  Pages pages_;
  int64_t row_;
  Floats<N> acc_[G];
};

// In single precision, which tensor cores do not have.
template <class T, int D, int G>
__global__ void __launch_bounds__(kThreads) attend(DecodeCall call) {
  using Attention = Attention<T, D, G>;
  __shared__ typename Attention::Shared shared;
  const Share share(call, 1);
  const float scale = M_LOG2E / sqrtf(D);
  const T* q = static_cast<const T*>(call.q) + (share.row * call.heads + share.first) * D;
  for (int i = threadIdx.x; i < G * D; i += kThreads) {
    shared.q[i / D][i % D] = i / D < share.count ? to_float(q[i]) * scale : 0;
  }
  Attention attention(shared, static_cast<const T*>(call.keys) + share.kv_head * D,
                      static_cast<const T*>(call.values) + share.kv_head * D,
                      int64_t{call.kv_heads} * D, call.pages, share.row);
  attention.add_keys(share.begin, share.end);
  attention.finish();
  for (int i = threadIdx.x; i < share.count * D; i += kThreads) {
    const int query = i / D, d = i % D;
    leave_result<T, D>(call, share, query, d, attention.result(query, d), shared.max[query],
                       shared.sum[query]);
  }
}

// One block per head (x) and row (y), one thread per element.
template <class T, int D>
__global__ void merge(DecodeCall call) {
  const int64_t row = blockIdx.y;
  const int head = blockIdx.x, d = threadIdx.x;
  const float* partial = call.partial + partial_place<D>(call, row, head, 0);
  float max = -INFINITY, sum = 0, value = 0;
  for (int split = 0; split < call.splits; ++split) {
    max = fmaxf(max, partial[split * (D + 2) + D]);
  }
  for (int split = 0; split < call.splits; ++split) {
    const float* part = partial + split * (D + 2);
    const float scale = exp2f(part[D] - max);  // 0 for a split without keys
    sum += scale * part[D + 1];
    value += scale * part[d];
  }
  static_cast<T*>(call.out)[(row * call.heads + head) * D + d] = from_float<T>(value / sum);
}

template <int D>
void launch_single(const DecodeCall& call, cudaStream_t stream) {
  const Groups groups(call);
  const dim3 grid(call.splits, call.kv_heads * groups.tiles, static_cast<unsigned>(call.rows));
  if (groups.heads == 1) {
    attend<float, D, 1><<<grid, kThreads, 0, stream>>>(call);
  } else if (groups.heads <= 4) {
    attend<float, D, 4><<<grid, kThreads, 0, stream>>>(call);
  } else {
    attend<float, D, kMostQueries><<<grid, kThreads, 0, stream>>>(call);
  }
}

template <int D>
void launch(const DecodeCall& call, cudaStream_t stream) {
  if (call.element == Element::kFloat) {
    launch_single<D>(call, stream);
  } else {
    launch_tensor_core_attention(call, stream);
  }
  if (call.splits == 1) return;
  const dim3 heads(call.heads, static_cast<unsigned>(call.rows));
  with_type(call.element,
            [&](auto zero) { merge<decltype(zero), D><<<heads, D, 0, stream>>>(call); });
}

}  // namespace

int decode_splits(const DecodeCall& call, int multiprocessors) {
  const int64_t blocks = call.rows * call.kv_heads * Groups(call).tiles;
  const int64_t wanted = multiprocessors * kBlocksPerMultiprocessor / blocks;
  return static_cast<int>(
      std::clamp(wanted, int64_t{1},
                 std::max(int64_t{1}, (call.pages.width << call.pages.shift) / kFewestKeys)));
}

int64_t decode_partial_size(const DecodeCall& call) {
  return call.rows * call.heads * call.splits * (call.head_dim + 2);
}

cudaError_t launch_decode_attention(const DecodeCall& call, cudaStream_t stream) {
  switch (call.head_dim) {
    case 64:
      launch<64>(call, stream);
      break;
    case 96:
      launch<96>(call, stream);
      break;
    case 128:
      launch<128>(call, stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace nereus::cuda
