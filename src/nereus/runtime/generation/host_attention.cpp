#include "nereus/runtime/generation/host_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

namespace nereus {

namespace {

// A sum of fixed order in lanes, which compilers make vectors of.
template <class Sum, class T>
Sum dot(const Sum* q, const T* key, int64_t size) {
  constexpr int64_t kLanes = 4;
  std::array<Sum, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += q[i + lane] * static_cast<Sum>(key[i + lane]);
    }
  }
  for (; i < size; ++i) lanes[0] += q[i] * static_cast<Sum>(key[i]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// One sequence's cache as one query head sees it.
template <class T>
struct HeadCache {
  const T *keys, *values;  // of the head
  const int32_t* table;
  int64_t block_tokens, stride;  // elements from one token to the next
  int64_t place(int64_t token) const {
    return (table[token / block_tokens] * block_tokens + token % block_tokens) * stride;
  }
};

// out = softmax(q · keys) · values over `length` tokens; q is scaled already.
template <class Sum, class T>
void attend(const std::vector<Sum>& q, const HeadCache<T>& cache, int64_t length,
            std::vector<Sum>& weights, std::vector<Sum>& out) {
  const auto d = static_cast<int64_t>(q.size());
  weights.resize(length);
  for (int64_t i = 0; i < length; ++i) weights[i] = dot(q.data(), cache.keys + cache.place(i), d);
  const Sum max = *std::ranges::max_element(weights);
  Sum sum = 0;
  for (Sum& weight : weights) sum += weight = std::exp(weight - max);
  std::ranges::fill(out, 0);
  for (int64_t i = 0; i < length; ++i) {
    const T* value = cache.values + cache.place(i);
    for (int64_t k = 0; k < d; ++k) out[k] += weights[i] * static_cast<Sum>(value[k]);
  }
  for (Sum& x : out) x /= sum;
}

template <class T>
void attend_all(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                const at::Tensor& tables, const at::Tensor& rows, const at::Tensor& positions,
                at::Tensor& result) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const int64_t heads = q.size(1), kv_heads = keys.size(2), d = q.size(2);
  const Sum scale = 1 / std::sqrt(static_cast<Sum>(d));
  std::vector<Sum> query(d), out(d), weights;
  for (int64_t token = 0; token < q.size(0); ++token) {
    const int64_t row = rows.const_data_ptr<int64_t>()[token];
    const int64_t length = positions.const_data_ptr<int64_t>()[token] + 1;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t kv = head / (heads / kv_heads);
      const HeadCache<T> cache{.keys = keys.const_data_ptr<T>() + kv * d,
                               .values = values.const_data_ptr<T>() + kv * d,
                               .table = tables.const_data_ptr<int32_t>() + row * tables.size(1),
                               .block_tokens = keys.size(1),
                               .stride = kv_heads * d};
      const T* from = q.const_data_ptr<T>() + (token * heads + head) * d;
      for (int64_t k = 0; k < d; ++k) query[k] = static_cast<Sum>(from[k]) * scale;
      attend(query, cache, length, weights, out);
      T* to = result.mutable_data_ptr<T>() + (token * heads + head) * d;
      for (int64_t k = 0; k < d; ++k) to[k] = static_cast<T>(out[k]);
    }
  }
}

}  // namespace

at::Tensor host_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                          const at::Tensor& tables, const at::Tensor& rows,
                          const at::Tensor& positions) {
  const at::Tensor queries = q.contiguous();
  at::Tensor result = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, q.scalar_type(), "host_attention", [&] {
    attend_all<scalar_t>(queries, keys, values, tables, rows, positions, result);
  });
  return result;
}

}  // namespace nereus
