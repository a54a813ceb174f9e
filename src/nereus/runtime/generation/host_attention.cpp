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
  const int64_t whole = size - size % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += q[i + lane] * static_cast<Sum>(key[i + lane]);
    }
  }
  for (int64_t i = whole; i < size; ++i) lanes[0] += q[i] * static_cast<Sum>(key[i]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// One sequence's cache as one query head sees it.
template <class T>
struct HeadCache {
  const T *keys, *values;  // of the head
  const int32_t* table;
  int64_t block_tokens, stride;  // elements from one token to the next

  // f(token, where its elements begin) for the first `length` tokens.
  template <class F>
  void for_tokens(int64_t length, const F& f) const {
    for (int64_t token = 0, block = 0; token < length; ++block) {
      int64_t place = table[block] * block_tokens * stride;
      for (const int64_t end = std::min(length, token + block_tokens); token < end; ++token) {
        f(token, place);
        place += stride;
      }
    }
  }
};

// softmax(q · keys) · values over tokens. `D` elements of a head are known when this is compiled,
// so that loops over them are unrolled; 0: they are not.
template <class T, int64_t D>
class HeadAttention {
 public:
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  explicit HeadAttention(int64_t size) : size_(size), query_(size), out_(size) {}

  void attend(const T* query, const HeadCache<T>& cache, int64_t length, T* result) {
    const Sum scale = 1 / std::sqrt(static_cast<Sum>(size()));
    for (int64_t k = 0; k < size(); ++k) query_[k] = static_cast<Sum>(query[k]) * scale;
    weights_.resize(length);
    Sum* weights = weights_.data();
    cache.for_tokens(length, [&](int64_t token, int64_t place) {
      weights[token] = dot(query_.data(), cache.keys + place, size());
    });
    const Sum max = *std::max_element(weights, weights + length);
    Sum sum = 0;
    for (int64_t token = 0; token < length; ++token) {
      sum += weights[token] = std::exp(weights[token] - max);
    }
    Sum* out = out_.data();
    std::fill(out, out + size(), Sum(0));
    cache.for_tokens(length, [&](int64_t token, int64_t place) {
      const T* value = cache.values + place;
      for (int64_t k = 0; k < size(); ++k) out[k] += weights[token] * static_cast<Sum>(value[k]);
    });
    for (int64_t k = 0; k < size(); ++k) result[k] = static_cast<T>(out[k] / sum);
  }

 private:
  int64_t size() const { return D > 0 ? D : size_; }

  int64_t size_;
  std::vector<Sum> query_, out_, weights_;
};

template <class T, int64_t D>
void attend_all(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                const at::Tensor& tables, const at::Tensor& rows, const at::Tensor& positions,
                at::Tensor& result) {
  const int64_t heads = q.size(1), kv_heads = keys.size(2), d = q.size(2);
  HeadAttention<T, D> attention(d);
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
      const int64_t place = (token * heads + head) * d;
      attention.attend(q.const_data_ptr<T>() + place, cache, length,
                       result.mutable_data_ptr<T>() + place);
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
    const auto with = [&](auto known) {
      attend_all<scalar_t, known()>(queries, keys, values, tables, rows, positions, result);
    };
    switch (q.size(2)) {
      case 8:
        return with(std::integral_constant<int64_t, 8>());
      case 64:
        return with(std::integral_constant<int64_t, 64>());
      case 128:
        return with(std::integral_constant<int64_t, 128>());
      default:
        return with(std::integral_constant<int64_t, 0>());
    }
  });
  return result;
}

}  // namespace nereus
