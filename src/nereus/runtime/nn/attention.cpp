#include "nereus/runtime/nn/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <vector>

namespace nereus {

namespace {

constexpr int64_t kFlashAlignment = 8;    // flash and cuDNN want head_dim in multiples of it
constexpr int64_t kRecurringLength = 64;  // lengths in multiples of it are met again and again

// Padded heads [b, T, heads, d] → [b, heads, T, d].
at::Tensor heads_first(const at::Tensor& x, const Packing& packing) {
  return pad(x, packing).transpose(1, 2);
}

// [b, kv heads, T, d] → [b, heads, T, d]: every KV head once per query head of its group.
at::Tensor expand_groups(const at::Tensor& x, int64_t groups) {
  if (groups == 1) return x;
  const int64_t b = x.size(0), kv = x.size(1), length = x.size(2), d = x.size(3);
  return x.unsqueeze(2).expand({b, kv, groups, length, d}).reshape({b, kv * groups, length, d});
}

at::Tensor padded_attention(const Heads& heads, const Packing& packing) {
  const int64_t groups = heads.q.size(1) / heads.k.size(1);
  // Padding comes after all real tokens, so that a causal mask hides it.
  const at::Tensor out = at::scaled_dot_product_attention(
      heads_first(heads.q, packing), expand_groups(heads_first(heads.k, packing), groups),
      expand_groups(heads_first(heads.v, packing), groups), {}, 0.0, /*is_causal=*/true);
  return unpad(out.transpose(1, 2), packing);
}

bool has_fused_kernels(const at::Tensor& q) {
  const at::ScalarType type = q.scalar_type();
  return q.is_cuda() && (type == at::kBFloat16 || type == at::kHalf) &&
         q.size(2) % kFlashAlignment == 0;
}

// The fastest (352 TFLOP/s forward and backward on an H200), for sequences of one length.
at::Tensor cudnn_attention(const Heads& heads, const Packing& packing) {
  const at::Tensor out = std::get<0>(at::_scaled_dot_product_cudnn_attention(
      heads_first(heads.q, packing), heads_first(heads.k, packing), heads_first(heads.v, packing),
      {}, /*compute_log_sumexp=*/at::GradMode::is_enabled(), 0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false));
  return unpad(out.transpose(1, 2), packing);
}

// Sequences of any lengths without padding (218 TFLOP/s).
at::Tensor packed_attention(const Heads& heads, const Packing& packing) {
  const int64_t longest = packing.longest();
  return std::get<0>(at::_flash_attention_forward(heads.q, heads.k, heads.v, packing.boundaries,
                                                  packing.boundaries, longest, longest, 0.0,
                                                  /*is_causal=*/true, /*return_debug_mask=*/false));
}

}  // namespace

Heads split_heads(const at::Tensor& qkv, int64_t kv_heads) {
  const std::vector<at::Tensor> parts =
      qkv.split_with_sizes({qkv.size(1) - 2 * kv_heads, kv_heads, kv_heads}, 1);
  return {parts[0], parts[1], parts[2]};
}

at::Tensor causal_attention(const Heads& heads, const Packing& packing) {
  const bool fused = has_fused_kernels(heads.q);
  // cuDNN takes 0.1 s to prepare for a shape that it has not met before.
  const bool recurs = packing.uniform() && packing.longest() % kRecurringLength == 0;
  const at::Tensor out = !fused   ? padded_attention(heads, packing)
                         : recurs ? cudnn_attention(heads, packing)
                                  : packed_attention(heads, packing);
  return out.flatten(1);
}

at::Tensor continued_attention(const Heads& heads, const Packing& packing, const Packing& seen) {
  if (has_fused_kernels(heads.q)) {
    return std::get<0>(
               at::_flash_attention_forward(heads.q, heads.k, heads.v, packing.boundaries,
                                            seen.boundaries, packing.longest(), seen.longest(), 0.0,
                                            /*is_causal=*/true, /*return_debug_mask=*/false))
        .flatten(1);
  }
  const int64_t groups = heads.q.size(1) / heads.k.size(1);
  std::vector<at::Tensor> parts;
  int64_t begin = 0, seen_begin = 0;
  for (int64_t i = 0; i < packing.sequences(); ++i) {
    const int64_t n = packing.lengths[i], all = seen.lengths[i];
    const auto heads_of = [](const at::Tensor& x, int64_t from, int64_t count) {
      return x.narrow(0, from, count).transpose(0, 1).unsqueeze(0);  // [1, heads, count, d]
    };
    const at::Tensor visible = at::ones({n, all}, heads.q.options().dtype(at::kBool)).tril(all - n);
    const at::Tensor out = at::scaled_dot_product_attention(
        heads_of(heads.q, begin, n), expand_groups(heads_of(heads.k, seen_begin, all), groups),
        expand_groups(heads_of(heads.v, seen_begin, all), groups), visible);
    parts.push_back(out.squeeze(0).transpose(0, 1).flatten(1));
    begin += n;
    seen_begin += all;
  }
  return at::cat(parts);
}

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const at::Tensor& mask) {
  const int64_t rows = q.size(0), heads = q.size(1), kv = keys.size(1), d = q.size(2);
  // The queries that share a KV head stand in for a query length: keys are read once per group.
  const at::Tensor grouped = q.unflatten(1, {kv, heads / kv});
  const at::Tensor out = at::scaled_dot_product_attention(
      grouped, keys, values, mask.defined() ? std::optional(mask) : std::nullopt);
  return out.reshape({rows, heads * d});
}

}  // namespace nereus
