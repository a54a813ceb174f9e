#include <cuda_pipeline.h>

#include <algorithm>
#include <cmath>

#include "nereus/runtime/cuda/vector.cuh"

namespace nereus::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 4;                    // threads that share one key
constexpr int kKeys = kThreads / kLanes;     // keys that a block looks at side by side
constexpr int kTileBytes = 16384;            // of keys, and as much of values, at a time
constexpr int kStages = 2;                   // tiles of which one is computed and one on its way
constexpr int kAlignment = 32;               // of the widest store to shared memory
constexpr int kMostQueries = 8;              // query heads of one block
constexpr int64_t kFewestKeys = 256;         // that are worth a block of their own
constexpr int kBlocksPerMultiprocessor = 3;  // that run side by side

// Query heads of one KV head are dealt to blocks in groups of at most kMostQueries.
struct Groups {
  int heads, tiles;  // query heads of a KV head; groups of them
  __host__ __device__ explicit Groups(const DecodeCall& call)
      : heads(call.heads / call.kv_heads), tiles((heads + kMostQueries - 1) / kMostQueries) {}
};

// Of G query heads over some keys: softmax's maxima and sums, and the weighted sums of values.
// Tiles of keys and values come to shared memory while the one before is computed.
template <class T, int D, int G>
class Attention {
 public:
  static constexpr int N = kPerLoad<T>;
  static constexpr int kChunks = D / N;               // loads that make a key or a value
  static constexpr int kValues = kThreads / kChunks;  // values that a block looks at side by side
  static constexpr int kTile = kTileBytes / (D * static_cast<int>(sizeof(T))) / kKeys * kKeys;
  static constexpr int kAtOnce = kTile / kKeys;  // keys of a tile that a thread has a share of

  struct Tile {
    T keys[kTile * D];  // chunks of a key in an order that depends on the key: see chunk_place()
    T values[kTile * D];
  };
  struct Shared {
    union {
      alignas(kAlignment) Tile tiles[kStages];
      alignas(kAlignment) float parts[kValues][G][D];  // when there are no tiles any more
    };
    alignas(kAlignment) float q[G][D];
    float scores[kTile][G];
    float max[G], sum[G], rescale[G];
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
    if (begin >= end) return;
    fetch(begin, end, 0);
    int stage = 0;
    for (int64_t tile = begin; tile < end; tile += kTile, stage = (stage + 1) % kStages) {
      if (tile + kTile < end) {
        fetch(tile + kTile, end, (stage + 1) % kStages);
        __pipeline_wait_prior(1);
      } else {
        __pipeline_wait_prior(0);
      }
      __syncthreads();
      score(shared_.tiles[stage], tile, end);
      __syncthreads();
      weigh();
      __syncthreads();
      add_values(shared_.tiles[stage], static_cast<int>(min(int64_t{kTile}, end - tile)));
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
  // Keys side by side in a warp would lie in the same banks, each chunk by chunk.
  __device__ static int chunk_place(int key, int chunk) {
    constexpr int kPermuted = kChunks % 8 == 0 ? 8 : 4;
    return (chunk ^ (key % kPermuted)) * N;
  }

  __device__ void fetch(int64_t tile, int64_t end, int stage) {
    Tile& into = shared_.tiles[stage];
#pragma unroll
    for (int piece = threadIdx.x; piece < kTile * kChunks; piece += kThreads) {
      const int key = piece / kChunks, chunk = piece % kChunks;
      const int64_t place = slot_of(pages_, row_, min(tile + key, end - 1)) * stride_ + chunk * N;
      __pipeline_memcpy_async(&into.keys[key * D + chunk_place(key, chunk)], keys_ + place,
                              N * sizeof(T));
      __pipeline_memcpy_async(&into.values[key * D + chunk * N], values_ + place, N * sizeof(T));
    }
    __pipeline_commit();
  }

  __device__ void score(const Tile& from, int64_t tile, int64_t end) {
    const int lane = threadIdx.x % kLanes, slot = threadIdx.x / kLanes;
    float dot[kAtOnce][G] = {};
#pragma unroll
    for (int c = 0; c < kChunks / kLanes; ++c) {
      const int at = c * kLanes + lane;
      Floats<N> key[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        key[u] = load<N>(&from.keys[(u * kKeys + slot) * D + chunk_place(u * kKeys + slot, at)]);
      }
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const Floats<N> q = load_floats(&shared_.q[g][at * N]);
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

  __device__ void add_values(const Tile& from, int count) {
    if (value_lane() >= kValues) return;
#pragma unroll
    for (int g = 0; g < G; ++g) {
#pragma unroll
      for (int k = 0; k < N; ++k) acc_[g][k] *= shared_.rescale[g];
    }
#pragma unroll 8
    for (int key = value_lane(); key < count; key += kValues) {
      const Floats<N> value = load<N>(&from.values[key * D + chunk() * N]);
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

  Shared& shared_;
  const T* keys_;
  const T* values_;
  int64_t stride_;
  Pages pages_;
  int64_t row_;
  Floats<N> acc_[G];
};

// Where split `split` of (row, head) leaves its D unnormalised sums, maximum and sum of weights.
template <int D>
__host__ __device__ int64_t partial_place(const DecodeCall& call, int64_t row, int head,
                                          int split) {
  return ((row * call.heads + head) * call.splits + split) * (D + 2);
}

// Blocks: splits along x, groups of query heads along y, rows along z.
template <class T, int D, int G>
__global__ void __launch_bounds__(kThreads, G <= 4 ? kBlocksPerMultiprocessor : 2)
    attend(DecodeCall call) {
  using Attention = Attention<T, D, G>;
  extern __shared__ __align__(kAlignment) char memory[];
  auto& shared = *reinterpret_cast<typename Attention::Shared*>(memory);
  const Groups groups(call);
  const int64_t row = blockIdx.z, split = blockIdx.x;
  const int kv = blockIdx.y / groups.tiles, tile = blockIdx.y % groups.tiles;
  const int first = kv * groups.heads + tile * kMostQueries;
  const int count = min(G, groups.heads - tile * kMostQueries);

  const float scale = M_LOG2E / sqrtf(D);
  const T* q = static_cast<const T*>(call.q) + (row * call.heads + first) * D;
  for (int i = threadIdx.x; i < G * D; i += kThreads) {
    shared.q[i / D][i % D] = i / D < count ? to_float(q[i]) * scale : 0;
  }
  const int64_t length = call.lengths[row] + 1;
  const int64_t share = (length + call.splits - 1) / call.splits;
  Attention attention(shared, static_cast<const T*>(call.keys) + kv * D,
                      static_cast<const T*>(call.values) + kv * D, int64_t{call.kv_heads} * D,
                      call.pages, row);
  attention.add_keys(split * share, min(length, (split + 1) * share));
  attention.finish();
  for (int i = threadIdx.x; i < count * D; i += kThreads) {
    const int g = i / D, d = i % D;
    const float sum = attention.result(g, d);
    if (call.splits == 1) {
      static_cast<T*>(call.out)[(row * call.heads + first) * D + i] =
          from_float<T>(sum / shared.sum[g]);
      continue;
    }
    float* partial = call.partial + partial_place<D>(call, row, first + g, split);
    partial[d] = sum;
    if (d == 0) {
      partial[D] = shared.max[g];
      partial[D + 1] = shared.sum[g];
    }
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

template <class T, int D, int G>
void launch_groups(const DecodeCall& call, cudaStream_t stream) {
  constexpr auto kBytes = static_cast<int>(sizeof(typename Attention<T, D, G>::Shared));
  const dim3 grid(call.splits, call.kv_heads * Groups(call).tiles,
                  static_cast<unsigned>(call.rows));
  // More than a kernel has without asking.
  cudaFuncSetAttribute(attend<T, D, G>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  attend<T, D, G><<<grid, kThreads, kBytes, stream>>>(call);
}

template <class T, int D>
void launch(const DecodeCall& call, cudaStream_t stream) {
  const Groups groups(call);
  if (groups.heads == 1) {
    launch_groups<T, D, 1>(call, stream);
  } else if (groups.heads <= 4) {
    launch_groups<T, D, 4>(call, stream);
  } else {
    launch_groups<T, D, kMostQueries>(call, stream);
  }
  if (call.splits == 1) return;
  const dim3 heads(call.heads, static_cast<unsigned>(call.rows));
  merge<T, D><<<heads, D, 0, stream>>>(call);
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
  with_type(call.element, [&](auto zero) {
    using T = decltype(zero);
    switch (call.head_dim) {
      case 64:
        return launch<T, 64>(call, stream);
      case 96:
        return launch<T, 96>(call, stream);
      case 128:
        return launch<T, 128>(call, stream);
    }
  });
  return cudaGetLastError();
}

}  // namespace nereus::cuda
