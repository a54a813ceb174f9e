// What models need on NVIDIA GPUs beyond ATen's operators. Everything is enqueued on the calling
// thread's current stream and goes into CUDA graphs. In builds without CUDA every function but
// takes() throws Error(kInternal).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace nereus::cuda {

// True if x is on a GPU, of a type (fp32, bf16, fp16) and with rows of `width` elements that the
// functions below take: multiples of 16 bytes.
bool takes(const at::Tensor& x, int64_t width);

// gate_up [n, 2 · f] → silu(gate) · up [n, f], and its gradient from that of the result.
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& grad, const at::Tensor& gate_up);

// x + y, rounded to their type, and rms_norm() of nn/rms_norm.h of it: all [n, width]. Requires
// takes(x, width). No autograd.
struct AddedNorm {
  at::Tensor sum, normed;
};
AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
                       double eps);

// apply_rope() of nn/rope.h; `inverse` turns back. Requires takes(x, head_dim / 2).
at::Tensor rope(const at::Tensor& x, int64_t rotated, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& positions, bool inverse);

// For rows of x = logits / temperature, in fp32: sums[0] Σ exp(x - max), sums[1] x at `columns` (0
// where that is negative), sums[2] Σ exp(x - max) · (x - max), sums[3] max, their maximum.
// logits [n, v]; columns [n] int64; sums [4, n] fp32, of which only the last stride must be 1.
void softmax_sums(const at::Tensor& logits, const at::Tensor& columns, double temperature,
                  const at::Tensor& sums);
// Overwrites logits with the gradient from those of each row's log-probability at `columns` and
// entropy, all [n] fp32: log_z = log Σ exp(x).
void softmax_backward(const at::Tensor& logits, const at::Tensor& columns, double temperature,
                      const at::Tensor& log_z, const at::Tensor& entropy,
                      const at::Tensor& grad_log_probs, const at::Tensor& grad_entropy);

// Whether the two functions below take such heads.
bool decodes(at::Device device, at::ScalarType type, int64_t head_dim);
// Keys and values of one block of the model, in blocks of tokens. keys, values [blocks, block
// tokens (a power of two), kv heads, d]; tables [rows, width] int32: the blocks of each row in
// order; lengths [rows] int64: tokens of each row but the new one, of which tables has room.
struct Paged {
  at::Tensor keys, values, tables, lengths;
};
// One new token a row: turns its queries and keys to position lengths[row], and puts key and value
// there into the cache. qkv [rows, heads + 2 · kv heads, d] → queries [rows, heads, d].
at::Tensor append_rotated(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                          const Paged& cache);
// q [rows, heads, d] against the first lengths[row] + 1 keys and values of its row → [rows,
// heads · d].
at::Tensor decode_attention(const at::Tensor& q, const Paged& cache);

struct Draw {
  uint64_t seed = 0;
  double temperature = 1;  // of the log-probabilities, and of the draw unless greedy
  bool greedy = false;
};
// What nn/sampler.h's draw() says, by the same noise: drawn [2, n] fp64 gets the tokens, and their
// log-probabilities under logits [n, vocab]; NaN among a row's logits makes that NaN. Tokens are
// drawn from `allowed`, greedily too: logits, or those with -inf in place of what is cut off.
// sample_ids, positions (of the tokens in their responses) [n] int64.
void draw(const at::Tensor& logits, const at::Tensor& allowed, const at::Tensor& sample_ids,
          const at::Tensor& positions, const Draw& how, const at::Tensor& drawn);

}  // namespace nereus::cuda
