// Keys and values of a batch of sequences, for one pipeline stage and TP rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nereus/runtime/nn/decoder.h"

namespace nereus {

// Belongs to one weight version: never reused after an update. No autograd. On GPUs each row
// continues right behind its own last token. Elsewhere all rows share one write position: the
// prompts, right-padded to the longest, fill the first slots, and every later token goes to the
// same next slot of all rows; a mask hides the gap behind shorter prompts.
class KvCache final {
 public:
  // Empty, for these prompts and `new_tokens` more per row. The stage must outlive it.
  KvCache(const DecoderStage& stage, Packing prompts, int64_t new_tokens);

  // The attention of DecoderStage::blocks(): first of all tokens of the prompts, packed; after the
  // first advance(), of one token per row.
  at::Tensor attend(int block, const at::Tensor& qkv);
  // When all blocks have got their tokens.
  void advance();
  // Keeps only the given rows, in that order: sequences that ended leave the batch.
  void keep_rows(const std::vector<int64_t>& rows);

  // Between two keep_rows(), attend() and advance() for new tokens touch the same memory in the
  // same way each time.
  bool repeats() const { return own_ends_; }

 private:
  at::Tensor attend_to_prompts(int block, const at::Tensor& qkv);

  Packing prompts_;
  RopeTables rope_;
  std::vector<at::Tensor> keys_;    // per local block: [rows, kv heads, capacity, head_dim]
  std::vector<at::Tensor> values_;  // same
  at::Tensor lengths_;              // [rows] int64: tokens in the cache
  bool own_ends_ = false;           // each row continues at its length, not at slots_
  int64_t slots_ = 0;               // filled so far
  at::Tensor mask_;  // [rows, 1, 1, capacity], added to scores: -inf in gaps, or undefined
};

}  // namespace nereus
