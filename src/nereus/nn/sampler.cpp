#include "nereus/nn/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_softmax.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "nereus/base/error.h"
#include "nereus/base/random.h"

namespace nereus {

namespace {

// Sets to 0 what top-k and then top-p (on what top-k left) cut off. Equal probabilities: lower id
// first.
void truncate(std::span<double> probabilities, int64_t top_k, double top_p) {
  std::vector<int64_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int64_t i) { return probabilities[i]; });
  size_t kept = order.size();
  if (top_k > 0) kept = std::min(kept, static_cast<size_t>(top_k));
  if (top_p < 1) {
    double total = 0;
    for (size_t i = 0; i < kept; ++i) total += probabilities[order[i]];
    double sum = 0;
    size_t enough = 0;
    while (enough < kept && sum < top_p * total) sum += probabilities[order[enough++]];
    kept = std::max<size_t>(enough, 1);
  }
  for (size_t i = kept; i < order.size(); ++i) probabilities[order[i]] = 0;
}

// The first id at which the cumulated probability exceeds u of the total.
int64_t inverse_cdf(std::span<const double> probabilities, double u) {
  const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  double sum = 0;
  int64_t last = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    sum += probabilities[i];
    last = static_cast<int64_t>(i);
    if (sum > u * total) break;
  }
  return last;
}

int64_t largest(std::span<const double> numbers) {
  return std::ranges::max_element(numbers) - numbers.begin();
}

}  // namespace

Drawn draw(const at::Tensor& logits, std::span<const uint64_t> sample_ids,
           std::span<const int64_t> positions, const SamplingParams& params) {
  const int64_t batch = logits.size(0), vocab = logits.size(1);
  NEREUS_CHECK(std::ssize(sample_ids) == batch && std::ssize(positions) == batch,
               std::to_string(batch) + " rows of logits");
  at::Tensor scores = logits.to(at::kCPU, at::kDouble);
  if (!params.greedy && params.temperature != 1) scores = scores / params.temperature;
  const at::Tensor log_probs = at::log_softmax(scores, 1).contiguous();
  at::Tensor probabilities = params.greedy ? at::Tensor() : log_probs.exp();
  Drawn drawn;
  for (int64_t row = 0; row < batch; ++row) {
    const std::span<const double> logs(log_probs.const_data_ptr<double>() + row * vocab, vocab);
    if (std::ranges::any_of(logs, [](double x) { return std::isnan(x); })) {
      throw Error(ErrorCode::kNumeric, "NaN among the logits of sample " +
                                           std::to_string(sample_ids[row]) + " at position " +
                                           std::to_string(positions[row]));
    }
    int64_t token = 0;
    if (params.greedy) {
      token = largest(logs);
    } else {
      const std::span<double> p(probabilities.data_ptr<double>() + row * vocab, vocab);
      if (params.top_k > 0 || params.top_p < 1) truncate(p, params.top_k, params.top_p);
      const RandomKey key{params.seed, sample_ids[row], static_cast<uint64_t>(positions[row])};
      token = inverse_cdf(p, uniform(key));
    }
    drawn.tokens.push_back(token);
    drawn.log_probs.push_back(logs[token]);
  }
  return drawn;
}

}  // namespace nereus
