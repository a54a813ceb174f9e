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

enum class Element { kFloat, kBFloat16, kHalf };

// gate_up [rows, 2 · width] → [rows, width]; rows are multiples of 16 bytes.
cudaError_t launch_swiglu(Element element, const void* gate_up, int64_t rows, int64_t width,
                          void* out, cudaStream_t stream);
cudaError_t launch_swiglu_backward(Element element, const void* grad, const void* gate_up,
                                   int64_t rows, int64_t width, void* grad_gate_up,
                                   cudaStream_t stream);

struct AddNormCall {
  Element element;
  const void *x, *y;   // [rows, width], rows of multiples of 16 bytes
  const void* weight;  // [width]
  void *sum, *normed;  // [rows, width]
  int64_t rows, width;
  float eps;
};
cudaError_t launch_add_rms_norm(const AddNormCall& call, cudaStream_t stream);

struct RopeCall {
  Element element;
  const void* x;             // [tokens, heads, head_dim], tokens `stride` elements apart
  int64_t stride;            // a multiple of 16 bytes, as half a head is
  void* y;                   // the same, contiguous
  const void *cos, *sin;     // [positions, head_dim / 2]
  const int64_t* positions;  // of each token
  int64_t tokens;
  int heads, rotated, head_dim;
  bool inverse;
};
cudaError_t launch_rope(const RopeCall& call, cudaStream_t stream);

// Keys or values in blocks: those of the tokens of a row lie in the blocks that its row of the
// table names, in their order; a block has 2^shift tokens, and of each one all KV heads side by
// side.
struct Pages {
  const int32_t* tables;  // [rows, width]
  int64_t width;
  int shift;
};

struct AppendCall {
  Element element;
  const void* qkv;  // [rows, heads + 2 · kv_heads, head_dim], rows `stride` elements apart
  int64_t stride;
  void* q;              // [rows, heads, head_dim]
  void *keys, *values;  // [blocks · 2^shift, kv_heads, head_dim]
  Pages pages;
  const void *cos, *sin;   // as above
  const int64_t* lengths;  // of each row: the new token's position
  int64_t rows;
  int heads, kv_heads, head_dim;
};
cudaError_t launch_append_rotated(const AppendCall& call, cudaStream_t stream);

// nn_ops.h, softmax_sums() and softmax_backward(). Row i of `sums` begins at sums + i ·
// sums_stride.
struct SoftmaxCall {
  Element element;
  void* logits;  // [rows, size]; only softmax_backward writes to it
  int64_t rows, size;
  const int64_t* columns;
  float temperature;
};
cudaError_t launch_softmax_sums(const SoftmaxCall& call, float* sums, int64_t sums_stride,
                                cudaStream_t stream);
struct SoftmaxGradient {  // all [rows]
  const float *log_z, *entropy, *grad_log_probs, *grad_entropy;
};
cudaError_t launch_softmax_backward(const SoftmaxCall& call, const SoftmaxGradient& gradient,
                                    cudaStream_t stream);

struct DrawCall {
  Element element;
  const void *logits, *allowed;  // [rows, vocab]
  int64_t rows, vocab;
  const int64_t* sample_ids;
  const int64_t* positions;  // [rows]: of the token in its response
  uint64_t seed;
  float temperature;
  bool greedy;
  double *tokens, *log_probs;  // [rows]
};
cudaError_t launch_draw(const DrawCall& call, cudaStream_t stream);

inline constexpr int kDecodeHeadDims[] = {64, 96, 128};

struct DecodeCall {
  Element element;
  const void* q;              // [rows, heads, head_dim]
  const void *keys, *values;  // as above
  Pages pages;
  const int64_t* lengths;  // [rows]: keys but one
  void* out;               // [rows, heads, head_dim]
  int64_t rows;
  int heads, kv_heads, head_dim;
  int splits;      // of each row's keys among blocks
  float* partial;  // decode_partial_size() floats if splits > 1
};
// A number of splits that keeps a GPU of so many multiprocessors busy.
int decode_splits(const DecodeCall& call, int multiprocessors);
int64_t decode_partial_size(const DecodeCall& call);
cudaError_t launch_decode_attention(const DecodeCall& call, cudaStream_t stream);

}  // namespace nereus::cuda
