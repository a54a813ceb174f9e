// What the kernels of decode attention share.
#pragma once

#include "nereus/runtime/cuda/vector.cuh"

namespace nereus::cuda {

inline constexpr int kMostQueries = 8;  // query heads of one block

// Query heads of one KV head are dealt to blocks in groups of at most kMostQueries.
struct Groups {
  int heads, tiles;  // query heads of a KV head; groups of them
  __host__ __device__ explicit Groups(const DecodeCall& call)
      : heads(call.heads / call.kv_heads), tiles((heads + kMostQueries - 1) / kMostQueries) {}
};

// Which keys of which heads a block looks at. Blocks: splits along x, groups of query heads along
// y, rows along z.
struct Share {
  int64_t row, begin, end;           // keys [begin, end)
  int split, kv_head, first, count;  // query heads [first, first + count)

  // Splits begin at multiples of `multiple` keys.
  __device__ Share(const DecodeCall& call, int multiple) {
    const Groups groups(call);
    row = blockIdx.z;
    split = static_cast<int>(blockIdx.x);
    kv_head = static_cast<int>(blockIdx.y) / groups.tiles;
    const int tile = static_cast<int>(blockIdx.y) % groups.tiles;
    first = kv_head * groups.heads + tile * kMostQueries;
    count = min(kMostQueries, groups.heads - tile * kMostQueries);
    const int64_t length = call.lengths[row] + 1;
    const int64_t most = (length + call.splits - 1) / call.splits;
    const int64_t keys = (most + multiple - 1) / multiple * multiple;
    begin = min(length, split * keys);
    end = min(length, begin + keys);
  }
};

// Where split `split` of (row, head) leaves its D unnormalised sums, maximum and sum of weights.
template <int D>
__host__ __device__ int64_t partial_place(const DecodeCall& call, int64_t row, int head,
                                          int split) {
  return ((row * call.heads + head) * call.splits + split) * (D + 2);
}

// An element of a block's result: the sum of weighted values under `max`, and of the weights.
template <class T, int D>
__device__ void leave_result(const DecodeCall& call, const Share& share, int query, int d,
                             float value, float max, float sum) {
  const int head = share.first + query;
  if (call.splits == 1) {
    static_cast<T*>(call.out)[(share.row * call.heads + head) * D + d] = from_float<T>(value / sum);
    return;
  }
  float* partial = call.partial + partial_place<D>(call, share.row, head, share.split);
  partial[d] = value;
  if (d != 0) return;
  partial[D] = max;
  partial[D + 1] = sum;
}

// For half precision; everything else is decode_attention.cu's.
void launch_tensor_core_attention(const DecodeCall& call, cudaStream_t stream);

}  // namespace nereus::cuda
