#include "nereus/nn/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace nereus {

namespace {

// [b, T, kv heads, d] → [b, heads, T, d]: every KV head once per query head of its group.
at::Tensor expand_groups(const at::Tensor& x, int64_t groups) {
  at::Tensor heads_first = x.transpose(1, 2);
  if (groups == 1) return heads_first;
  const int64_t b = x.size(0), length = x.size(1), kv = x.size(2), d = x.size(3);
  return heads_first.unsqueeze(2)
      .expand({b, kv, groups, length, d})
      .reshape({b, kv * groups, length, d});
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t groups = q.size(2) / k.size(2);
  const at::Tensor out = at::scaled_dot_product_attention(
      q.transpose(1, 2), expand_groups(k, groups), expand_groups(v, groups), {}, 0.0,
      /*is_causal=*/true);
  return out.transpose(1, 2).flatten(2);
}

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const at::Tensor& mask) {
  const int64_t b = q.size(0), kv = keys.size(1), d = q.size(3);
  // The queries that share a KV head stand in for a query length: keys are read once per group.
  const at::Tensor grouped = q.view({b, kv, q.size(2) / kv, d});
  const at::Tensor out = at::scaled_dot_product_attention(
      grouped, keys, values, mask.defined() ? std::optional(mask) : std::nullopt);
  return out.reshape({b, 1, q.size(2) * d});
}

}  // namespace nereus
