// The CUDA kernels. Pointers are to memory of the calling thread's current device; everything is
// only enqueued on `stream`. No torch headers here and in *.cu: these compile in seconds.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

namespace nereus::cuda {

// Where the elements of a contiguous shard lie in its global tensor: rows of `run` elements whose
// global indices follow each other; the first ones of the rows make a grid.
struct HashedBox {
  static constexpr int kDims = 3;
  std::array<int64_t, kDims> rows;     // extents of the grid, the last one fastest
  std::array<int64_t, kDims> strides;  // global index from one row to the next, by dimension
  int64_t run = 0;
  uint64_t first = 0;  // global index of the first element
};

// Adds Σ mix(bits(x_i) + i · φ) (engine/state_hash.h) to *sum; `element_size` is 2, 4 or 8 bytes.
cudaError_t launch_hash(const void* data, int element_size, const HashedBox& box, uint64_t* sum,
                        cudaStream_t stream);

}  // namespace nereus::cuda
