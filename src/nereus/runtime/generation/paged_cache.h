// Keys and values in blocks, for one pipeline stage and TP rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "nereus/core/batching/scheduler.h"
#include "nereus/runtime/nn/decoder.h"

namespace nereus {

// Sequences that get one token each. tables [rows, width] int32: their blocks in order; lengths
// [rows] int64: the tokens that they have in the cache. slots [rows] int64: where the new ones go,
// as PagedCache::next_slots() says; kernels work that out for themselves.
struct CacheRows {
  at::Tensor tables;
  at::Tensor lengths;
  at::Tensor slots;
};

// Consecutive tokens of several sequences, packed.
struct CacheChunks {
  Packing packing;              // of the new tokens
  at::Tensor positions;         // [n] int64: of each new token in its sequence
  at::Tensor slots;             // [n] int64: block · block tokens + place in the block
  bool from_the_start = false;  // all of them begin their sequences: the rest is not needed
  Packing seen;                 // of all tokens of the sequences up to the last new ones
  at::Tensor seen_slots;
  at::Tensor tables;  // [sequences, width] int32
  at::Tensor rows;    // [n] int64: whose token it is
};

// Belongs to one weight version. No autograd. Blocks are those of a Scheduler, dealt to sequences
// by it; one more serves rows that stand for nobody. A step's new tokens may see each other across
// sequences: all are written before any attends.
class PagedCache final {
 public:
  // For sequences of up to `longest` tokens. The stage must outlive it.
  PagedCache(const DecoderStage& stage, int64_t blocks, int block_tokens, int64_t longest);

  int block_tokens() const { return static_cast<int>(pool_.size(2)); }
  int64_t width() const { return width_; }  // blocks of the longest sequence
  BlockId nobodys() const { return static_cast<BlockId>(pool_.size(1) - 1); }

  // Where the tokens of chunks go, and what they see. A chunk's blocks are those of its sequence.
  CacheChunks chunks(std::span<const PromptChunk> chunks, const Scheduler& scheduler) const;

  // Whether a kernel decodes, which reads tables and lengths alone.
  bool has_kernel() const { return has_kernel_; }
  at::Tensor next_slots(const CacheRows& rows) const;

  // The attention of DecoderStage::blocks() for the local block number `block`.
  at::Tensor attend(int block, const at::Tensor& qkv, const CacheRows& rows);
  at::Tensor attend(int block, const at::Tensor& qkv, const CacheChunks& chunks);

  void copy(std::span<const BlockCopy> copies);

 private:
  at::Tensor keys(int block) const { return pool_.select(0, 2 * static_cast<int64_t>(block)); }
  at::Tensor values(int block) const {
    return pool_.select(0, 2 * static_cast<int64_t>(block) + 1);
  }
  at::Tensor turned(const at::Tensor& qkv, const at::Tensor& positions) const;

  at::Tensor pool_;  // [2 · local blocks, cache blocks + 1, block tokens, kv heads, head_dim]
  RopeTables rope_;
  int64_t width_;
  bool has_kernel_;
};

}  // namespace nereus
