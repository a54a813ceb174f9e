#include "nereus/runtime/generation/paged_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "nereus/runtime/cuda/nn_ops.h"
#include "nereus/runtime/generation/host_attention.h"
#include "nereus/runtime/nn/attention.h"

namespace nereus {

namespace {

// [blocks, block tokens, …] → [slots, …].
at::Tensor by_slot(const at::Tensor& blocks) { return blocks.flatten(0, 1); }

// One token a row where there is no kernel: over all that the tables name, of which a mask hides
// what the row does not see.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const CacheRows& rows) {
  const at::Tensor blocks = rows.tables.flatten();
  const auto of_rows = [&](const at::Tensor& pool) {
    return by_slot(pool.index_select(0, blocks))
        .unflatten(0, {q.size(0), -1})
        .transpose(1, 2);  // [rows, kv heads, tokens, d]
  };
  const at::Tensor own_keys = of_rows(keys);
  const at::Tensor hidden = at::arange(own_keys.size(2), blocks.device())
                                .unsqueeze(0)
                                .gt(rows.lengths.unsqueeze(1))
                                .view({q.size(0), 1, 1, own_keys.size(2)});
  const at::Tensor mask = at::zeros(hidden.sizes(), q.options())
                              .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return decode_attention(q, own_keys, of_rows(values), mask);
}

}  // namespace

PagedCache::PagedCache(const DecoderStage& stage, int64_t blocks, int block_tokens, int64_t longest)
    : rope_(stage.rope_tables(longest)),
      width_((longest + block_tokens - 1) / block_tokens),
      has_kernel_(cuda::decodes(stage.options().device(),
                                c10::typeMetaToScalarType(stage.options().dtype()),
                                stage.spec().head_dim)) {
  const int64_t layers = stage.layers().end - stage.layers().begin;
  pool_ = at::empty({2 * layers, blocks + 1, block_tokens, stage.kv_heads(), stage.spec().head_dim},
                    stage.options());
  // What a mask hides is multiplied by 0, and so must be a number; kernels do not touch it.
  if (!pool_.is_cpu() && !has_kernel_) pool_.zero_();
  pool_.select(1, blocks).zero_();
}

CacheChunks PagedCache::chunks(std::span<const PromptChunk> chunks,
                               const Scheduler& scheduler) const {
  CacheChunks result;
  const at::Device device = pool_.device();
  const auto on_device = [&](const auto& numbers, at::ScalarType type) {
    return at::tensor(numbers, type).to(device);
  };
  std::vector<int64_t> counts, ends, positions, slots, seen_slots, rows;
  std::vector<int32_t> tables;
  result.from_the_start = true;
  for (const PromptChunk& chunk : chunks) {
    const std::span<const BlockId> blocks = scheduler.blocks(chunk.sequence);
    const int64_t end = chunk.begin + chunk.count;
    for (int64_t i = 0; i < end; ++i) {
      seen_slots.push_back(int64_t{blocks[i / block_tokens()]} * block_tokens() +
                           i % block_tokens());
      if (i < chunk.begin) continue;
      positions.push_back(i);
      slots.push_back(seen_slots.back());
      rows.push_back(std::ssize(counts));
    }
    counts.push_back(chunk.count);
    ends.push_back(end);
    result.from_the_start = result.from_the_start && chunk.begin == 0;
    const auto needed = std::min<int64_t>(std::ssize(blocks), width_);
    tables.insert(tables.end(), blocks.begin(), blocks.begin() + needed);
    tables.resize(counts.size() * width_, nobodys());
  }
  result.packing = pack(std::move(counts), device);
  result.positions = on_device(positions, at::kLong);
  result.slots = on_device(slots, at::kLong);
  if (result.from_the_start) return result;
  result.tables = on_device(tables, at::kInt).view({result.packing.sequences(), width_});
  result.seen = pack(std::move(ends), device);
  result.seen_slots = on_device(seen_slots, at::kLong);
  result.rows = on_device(rows, at::kLong);
  return result;
}

at::Tensor PagedCache::turned(const at::Tensor& qkv, const at::Tensor& positions) const {
  return apply_rope(qkv, qkv.size(1) - pool_.size(3), rope_, positions);
}

at::Tensor PagedCache::next_slots(const CacheRows& rows) const {
  const at::Tensor last = rows.lengths.floor_divide(block_tokens()).unsqueeze(1);
  const at::Tensor blocks = rows.tables.gather(1, last).squeeze(1).to(at::kLong);
  return blocks * block_tokens() + rows.lengths.remainder(block_tokens());
}

at::Tensor PagedCache::attend(int block, const at::Tensor& qkv, const CacheRows& rows) {
  const at::Tensor own_keys = keys(block), own_values = values(block);
  if (has_kernel_) {
    const cuda::Paged cache{own_keys, own_values, rows.tables, rows.lengths};
    return cuda::decode_attention(cuda::append_rotated(qkv, rope_.cos, rope_.sin, cache), cache);
  }
  const Heads heads = split_heads(turned(qkv, rows.lengths), own_keys.size(2));
  by_slot(own_keys).index_copy_(0, rows.slots, heads.k);
  by_slot(own_values).index_copy_(0, rows.slots, heads.v);
  if (qkv.is_cpu()) {
    return host_attention(heads.q, own_keys, own_values, rows.tables,
                          at::arange(qkv.size(0), at::kLong), rows.lengths);
  }
  return masked_attention(heads.q, own_keys, own_values, rows);
}

at::Tensor PagedCache::attend(int block, const at::Tensor& qkv, const CacheChunks& chunks) {
  const at::Tensor own_keys = keys(block), own_values = values(block);
  const Heads heads = split_heads(turned(qkv, chunks.positions), own_keys.size(2));
  by_slot(own_keys).index_copy_(0, chunks.slots, heads.k);
  by_slot(own_values).index_copy_(0, chunks.slots, heads.v);
  if (chunks.from_the_start) return causal_attention(heads, chunks.packing);
  if (qkv.is_cpu()) {
    return host_attention(heads.q, own_keys, own_values, chunks.tables, chunks.rows,
                          chunks.positions);
  }
  const auto seen = [&](const at::Tensor& pool) {
    return by_slot(pool).index_select(0, chunks.seen_slots);
  };
  return continued_attention({heads.q, seen(own_keys), seen(own_values)}, chunks.packing,
                             chunks.seen);
}

void PagedCache::copy(std::span<const BlockCopy> copies) {
  if (copies.empty()) return;
  std::vector<int64_t> from, to;
  for (const BlockCopy& copy : copies) {
    from.push_back(copy.from);
    to.push_back(copy.to);
  }
  const auto on_device = [&](const std::vector<int64_t>& blocks) {
    return at::tensor(blocks, at::kLong).to(pool_.device());
  };
  pool_.index_copy_(1, on_device(to), pool_.index_select(1, on_device(from)));
}

}  // namespace nereus
