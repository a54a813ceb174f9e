#include "nereus/nn/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

namespace nereus {

KvCache make_kv_cache(const ModelSpec& spec, Layout layout, Rank rank,
                      const std::vector<int64_t>& prompt_lengths, int64_t new_tokens,
                      const at::TensorOptions& options) {
  const auto batch = static_cast<int64_t>(prompt_lengths.size());
  const auto [shortest, longest] = std::ranges::minmax(prompt_lengths);
  const int64_t capacity = longest + new_tokens;
  const LayerRange heads = tp_groups_of(spec.num_kv_heads, layout.tp, rank.tp);
  const LayerRange layers = stage_layers(spec.num_layers, layout.pp, rank.pp);
  KvCache cache{.lengths = prompt_lengths};
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    for (std::vector<at::Tensor>* tensors : {&cache.keys, &cache.values}) {
      tensors->push_back(
          at::empty({batch, heads.end - heads.begin, capacity, spec.head_dim}, options));
    }
  }
  if (shortest == longest) return cache;
  const at::Tensor mask = at::zeros({batch, 1, 1, capacity}, options.device(at::kCPU));
  for (int64_t row = 0; row < batch; ++row) {
    const int64_t gap = longest - prompt_lengths[row];
    mask[row].narrow(-1, prompt_lengths[row], gap).fill_(-std::numeric_limits<double>::infinity());
  }
  cache.mask = mask.to(options.device());
  return cache;
}

void keep_rows(KvCache& cache, const std::vector<int64_t>& rows) {
  const at::Tensor index = at::tensor(rows, at::kLong).to(cache.keys.front().device());
  for (at::Tensor& keys : cache.keys) keys = keys.index_select(0, index);
  for (at::Tensor& values : cache.values) values = values.index_select(0, index);
  if (cache.mask.defined()) cache.mask = cache.mask.index_select(0, index);
  std::vector<int64_t> lengths;
  lengths.reserve(rows.size());
  for (const int64_t row : rows) lengths.push_back(cache.lengths[row]);
  cache.lengths = std::move(lengths);
}

}  // namespace nereus
