// Keys and values of a batch of sequences, for one pipeline stage and TP rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nereus/state/sharding.h"

namespace nereus {

// Rows may have different lengths. Belongs to one weight version: never reused after an update.
struct KvCache {
  std::vector<at::Tensor> keys;    // per local layer: [batch, kv heads of this rank, capacity, head_dim]
  std::vector<at::Tensor> values;  // same
  std::vector<int64_t> lengths;    // per row, tokens already stored

  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
};

// Uninitialised cache for `batch` rows of up to `capacity` tokens.
KvCache make_kv_cache(const ModelSpec& spec, Layout layout, Rank rank, int64_t batch,
                      int64_t capacity, const at::TensorOptions& options);
// Keeps only the given rows, in that order: sequences that ended leave the batch.
void keep_rows(KvCache& cache, const std::vector<int64_t>& rows);

}  // namespace nereus
