#include "nereus/runtime/nn/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "nereus/runtime/cuda/nn_ops.h"
#include "nereus/runtime/nn/attention.h"

namespace nereus {

namespace {

// -inf from the end of each prompt to the end of the longest; undefined if all are as long.
at::Tensor gap_mask(const Packing& prompts, int64_t capacity, const at::TensorOptions& options) {
  if (prompts.uniform()) return {};
  const at::Tensor mask =
      at::zeros({prompts.sequences(), 1, 1, capacity}, at::dtype(options.dtype()));
  for (int64_t row = 0; row < prompts.sequences(); ++row) {
    const int64_t length = prompts.lengths[row];
    mask[row]
        .narrow(-1, length, prompts.longest() - length)
        .fill_(-std::numeric_limits<double>::infinity());
  }
  return mask.to(options.device());
}

}  // namespace

KvCache::KvCache(const DecoderStage& stage, Packing prompts, int64_t new_tokens)
    : prompts_(std::move(prompts)) {
  const at::TensorOptions options = stage.options();
  const int64_t capacity = prompts_.longest() + new_tokens, head_dim = stage.spec().head_dim;
  rope_ = stage.rope_tables(capacity);
  for (int layer = stage.layers().begin; layer < stage.layers().end; ++layer) {
    for (std::vector<at::Tensor>* tensors : {&keys_, &values_}) {
      tensors->push_back(
          at::empty({prompts_.sequences(), stage.kv_heads(), capacity, head_dim}, options));
    }
  }
  lengths_ = at::tensor(prompts_.lengths, at::kLong).to(options.device());
  own_ends_ = cuda::decodes(options.device(), c10::typeMetaToScalarType(options.dtype()), head_dim);
  if (!own_ends_) mask_ = gap_mask(prompts_, capacity, options);
}

at::Tensor KvCache::attend(int block, const at::Tensor& qkv) {
  if (slots_ == 0) return attend_to_prompts(block, qkv);
  at::Tensor &keys = keys_[block], &values = values_[block];
  if (own_ends_) {
    const at::Tensor q = cuda::append_rotated(qkv, rope_.cos, rope_.sin, lengths_, keys, values);
    return cuda::decode_attention(q, keys, values, lengths_);
  }
  const int64_t kv_heads = keys.size(1), filled = slots_ + 1;
  const Heads heads =
      split_heads(apply_rope(qkv, qkv.size(1) - kv_heads, rope_, lengths_), kv_heads);
  keys.select(2, slots_).copy_(heads.k);
  values.select(2, slots_).copy_(heads.v);
  return decode_attention(heads.q, keys.narrow(2, 0, filled), values.narrow(2, 0, filled),
                          mask_.defined() ? mask_.narrow(3, 0, filled) : at::Tensor());
}

at::Tensor KvCache::attend_to_prompts(int block, const at::Tensor& qkv) {
  const int64_t kv_heads = keys_[block].size(1), longest = prompts_.longest();
  const Heads heads =
      split_heads(apply_rope(qkv, qkv.size(1) - kv_heads, rope_, prompts_.positions), kv_heads);
  keys_[block].narrow(2, 0, longest).copy_(pad(heads.k, prompts_).transpose(1, 2));
  values_[block].narrow(2, 0, longest).copy_(pad(heads.v, prompts_).transpose(1, 2));
  return causal_attention(heads, prompts_);
}

void KvCache::advance() {
  if (slots_ == 0) {
    slots_ = prompts_.longest();
  } else {
    lengths_.add_(1);
    ++slots_;
  }
}

void KvCache::keep_rows(const std::vector<int64_t>& rows) {
  const at::Tensor index = at::tensor(rows, at::kLong).to(lengths_.device());
  for (at::Tensor& keys : keys_) keys = keys.index_select(0, index);
  for (at::Tensor& values : values_) values = values.index_select(0, index);
  lengths_ = lengths_.index_select(0, index);
  if (mask_.defined()) mask_ = mask_.index_select(0, index);
}

}  // namespace nereus
