#include <cuda_pipeline.h>

#include <cmath>

#include "nereus/runtime/cuda/decode_attention.cuh"
#include "nereus/runtime/cuda/tensor_core.cuh"

namespace nereus::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kStages = 3;  // tiles of a warp: one is computed, the others are on their way
constexpr int kKeys = 16;   // of a tile

// A warp attends to tiles of keys by itself, and by itself brings them to shared memory: nobody
// waits for anybody until the warps' results are added up. Keys stand in the rows of the matrices,
// query heads (up to eight) in the columns: scores [keys, queries] = K · Qᵀ, sums [D, queries] = Vᵀ
// · weights.
template <class T, int D>
class WarpAttention {
 public:
  static constexpr int kChunk = 8;  // elements of 16 bytes, the row of a small matrix
  static constexpr int kChunks = D / kChunk;
  static constexpr int kSteps = D / 16;  // products of 16 dimensions

  struct Tile {
    T keys[kKeys * D], values[kKeys * D];  // chunks of a row permuted: see place()
  };

  __device__ WarpAttention(const DecodeCall& call, const Share& share, Tile* tiles)
      : pages_(call.pages),
        row_(share.row),
        end_(share.end),
        stride_(int64_t{call.kv_heads} * D),
        keys_(static_cast<const T*>(call.keys) + share.kv_head * D),
        values_(static_cast<const T*>(call.values) + share.kv_head * D),
        tiles_(tiles) {
    const int query = lane() / 4;
    const T* q = static_cast<const T*>(call.q) +
                 (share.row * call.heads + share.first + query) * D + lane() % 4 * 2;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const T* pair = q + step * 16 + half * 8;
        queries_[step][half] = query < share.count ? *reinterpret_cast<const Fragment*>(pair) : 0;
      }
    }
  }

  // Every `step`-th tile from `begin` on.
  __device__ void add_keys(int64_t begin, int64_t step) {
    for (int ahead = 0; ahead < kStages - 1; ++ahead) fetch(begin + ahead * step, ahead);
    int stage = 0;
    for (int64_t tile = begin; tile < end_; tile += step) {
      fetch(tile + (kStages - 1) * step, (stage + kStages - 1) % kStages);
      __pipeline_wait_prior(kStages - 1);
      __syncwarp();
      add_tile(tiles_[stage], tile);
      __syncwarp();
      stage = (stage + 1) % kStages;
    }
    __pipeline_wait_prior(0);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        sum_[i] += __shfl_xor_sync(~0U, sum_[i], lanes);
      }
    }
  }

  // The lane's results: of queries 2 · (lane % 4) and the next (`i`), dimension 16 · step + lane /
  // 4, and eight further (`half`).
  __device__ float sum(int i) const { return sum_[i]; }
  __device__ float max(int i) const { return max_[i]; }
  __device__ float value(int step, int half, int i) const { return sums_[step][half * 2 + i]; }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Rows side by side would lie in the same banks, each chunk by chunk.
  __device__ static int place(int key, int chunk) {
    const int shift = kChunks % 8 == 0 ? key % 8 : key / 2 % 4;
    return key * D + (chunk ^ shift) * kChunk;
  }

  // Begins to bring a tile; none behind the end, but counts as one.
  __device__ void fetch(int64_t tile, int stage) {
    if (tile < end_) {
      Tile& into = tiles_[stage];
#pragma unroll
      for (int piece = lane(); piece < kKeys * kChunks; piece += 32) {
        const int key = piece / kChunks, chunk = piece % kChunks;
        const int64_t from =
            slot_of(pages_, row_, min(tile + key, end_ - 1)) * stride_ + chunk * kChunk;
        __pipeline_memcpy_async(&into.keys[place(key, chunk)], keys_ + from, 16);
        __pipeline_memcpy_async(&into.values[place(key, chunk)], values_ + from, 16);
      }
    }
    __pipeline_commit();
  }

  __device__ void add_tile(const Tile& from, int64_t tile) {
    // Which row of which small matrix the lane names to ldmatrix.
    const int row = lane() % 8, matrix = lane() / 8;
    float scores[4] = {};  // keys lane / 4 (two queries), and eight further
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Fragment k[4];
      load_matrices(k, &from.keys[place(row + matrix % 2 * 8, step * 2 + matrix / 2)]);
      multiply_add(T{}, scores, k, queries_[step][0], queries_[step][1]);
    }
    const float scale = static_cast<float>(M_LOG2E) / sqrtf(D);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t key = tile + lane() / 4 + i / 2 * 8;
      scores[i] = key < end_ ? scores[i] * scale : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float most = fmaxf(scores[i], scores[i + 2]);
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0U, most, lanes));
      }
      most = fmaxf(most, max_[i]);
      const float rescale = exp2f(max_[i] - most);
      max_[i] = most;
      scores[i] = exp2f(scores[i] - most);
      scores[i + 2] = exp2f(scores[i + 2] - most);
      sum_[i] = sum_[i] * rescale + scores[i] + scores[i + 2];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        sums_[step][i] *= rescale;
        sums_[step][i + 2] *= rescale;
      }
    }
    const Fragment weights[2] = {transposed(packed(T{}, scores[0], scores[1])),
                                 transposed(packed(T{}, scores[2], scores[3]))};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Fragment v[4];
      load_transposed(v, &from.values[place(row + matrix / 2 * 8, step * 2 + matrix % 2)]);
      multiply_add(T{}, sums_[step], v, weights[0], weights[1]);
    }
  }

  Pages pages_;
  int64_t row_, end_, stride_;
  const T* keys_;
  const T* values_;
  Tile* tiles_;
  Fragment queries_[kSteps][2];
  float sums_[kSteps][4] = {};
  float max_[2] = {-INFINITY, -INFINITY}, sum_[2] = {};
};

template <class T, int D>
struct Shared {
  union {
    typename WarpAttention<T, D>::Tile tiles[kWarps][kStages];
    float sums[kWarps][kMostQueries][D];  // when there are no tiles any more
  };
  float max[kWarps][kMostQueries], weights[kWarps][kMostQueries];
};

template <class T, int D>
__global__ void __launch_bounds__(kWarps * 32, 2) attend(DecodeCall call) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<T, D>*>(memory);
  const Share share(call, kKeys);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  WarpAttention<T, D> attention(call, share, shared.tiles[warp]);
  attention.add_keys(share.begin + warp * kKeys, kWarps * kKeys);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = lane % 4 * 2 + i;
    if (lane < 4) {
      shared.max[warp][query] = attention.max(i);
      shared.weights[warp][query] = attention.sum(i);
    }
#pragma unroll
    for (int step = 0; step < WarpAttention<T, D>::kSteps; ++step) {
      for (int half = 0; half < 2; ++half) {
        shared.sums[warp][query][step * 16 + half * 8 + lane / 4] = attention.value(step, half, i);
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < share.count * D; i += kWarps * 32) {
    const int query = i / D, d = i % D;
    float max = -INFINITY, sum = 0, value = 0;
    for (int w = 0; w < kWarps; ++w) max = fmaxf(max, shared.max[w][query]);
    for (int w = 0; w < kWarps; ++w) {
      if (shared.max[w][query] == -INFINITY) continue;  // it had no keys
      const float scale = exp2f(shared.max[w][query] - max);
      sum += scale * shared.weights[w][query];
      value += scale * shared.sums[w][query][d];
    }
    leave_result<T, D>(call, share, query, d, value, max, sum);
  }
}

template <class T, int D>
void launch(const DecodeCall& call, cudaStream_t stream) {
  constexpr auto kBytes = static_cast<int>(sizeof(Shared<T, D>));
  const dim3 grid(call.splits, call.kv_heads * Groups(call).tiles,
                  static_cast<unsigned>(call.rows));
  // More than a kernel has without asking.
  cudaFuncSetAttribute(attend<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  attend<T, D><<<grid, kWarps * 32, kBytes, stream>>>(call);
}

template <class T>
void launch(const DecodeCall& call, cudaStream_t stream) {
  switch (call.head_dim) {
    case 64:
      return launch<T, 64>(call, stream);
    case 96:
      return launch<T, 96>(call, stream);
    case 128:
      return launch<T, 128>(call, stream);
  }
}

}  // namespace

void launch_tensor_core_attention(const DecodeCall& call, cudaStream_t stream) {
  if (call.element == Element::kBFloat16) return launch<__nv_bfloat16>(call, stream);
  launch<__half>(call, stream);
}

}  // namespace nereus::cuda
