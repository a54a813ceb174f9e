// Keys and values of a batch of sequences, for one pipeline stage and TP rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nereus/state/sharding.h"

namespace nereus {

// All rows share one write position: the prompts, right-padded to the longest, fill the first
// slots, and every later token goes to the same next slot of all rows. So a row's prompt may be
// followed by a gap of padding, which `mask` hides; positions count real tokens only. Belongs to
// one weight version: never reused after an update.
struct KvCache {
  std::vector<at::Tensor>
      keys;  // per local layer: [batch, kv heads of this rank, capacity, head_dim]
  std::vector<at::Tensor> values;  // same
  std::vector<int64_t> lengths;    // per row, real tokens, those of a coming prefill included
  int64_t slots = 0;               // filled so far
  at::Tensor mask;  // added to scores [batch, 1, 1, capacity]: -inf in gaps; undefined without gaps

  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
};

// Empty cache for prompts of `prompt_lengths` tokens (at least 1 each) and `new_tokens` more per
// row.
KvCache make_kv_cache(const ModelSpec& spec, Layout layout, Rank rank,
                      const std::vector<int64_t>& prompt_lengths, int64_t new_tokens,
                      const at::TensorOptions& options);
// Keeps only the given rows, in that order: sequences that ended leave the batch.
void keep_rows(KvCache& cache, const std::vector<int64_t>& rows);

}  // namespace nereus
