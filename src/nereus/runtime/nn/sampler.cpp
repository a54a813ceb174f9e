#include "nereus/runtime/nn/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/base/random.h"
#include "nereus/runtime/cuda/nn_ops.h"

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

// What logits are divided by.
double divisor(const SamplingParams& params) {
  return params.greedy && params.temperature == 0 ? 1 : params.temperature;
}

constexpr double kCutOff = -std::numeric_limits<double>::infinity();

// What truncate() leaves of the logits, -inf elsewhere, where the logits are.
at::Tensor truncated(const at::Tensor& logits, const SamplingParams& params) {
  const int64_t vocab = logits.size(1);
  auto [sorted, order] = at::sort(logits, /*stable=*/true, /*dim=*/1, /*descending=*/true);
  const int64_t kept = params.top_k > 0 ? std::min(params.top_k, vocab) : vocab;
  sorted.narrow(1, kept, vocab - kept).fill_(kCutOff);
  if (params.top_p < 1) {
    const at::Tensor p = at::softmax(sorted / params.temperature, 1, at::kFloat);
    const at::Tensor before = p.cumsum(1) - p;
    const auto but_first = [&](const at::Tensor& x) { return x.narrow(1, 1, vocab - 1); };
    but_first(sorted).masked_fill_(but_first(before).ge(params.top_p), kCutOff);
  }
  return at::full_like(logits, kCutOff).scatter_(1, order, sorted);
}

}  // namespace

void throw_nan(uint64_t sample_id, int64_t position) {
  throw Error(ErrorCode::kNumeric, "NaN among the logits of sample " + std::to_string(sample_id) +
                                       " at position " + std::to_string(position));
}

Drawn draw(const at::Tensor& logits, std::span<const uint64_t> sample_ids,
           std::span<const int64_t> positions, const SamplingParams& params) {
  const int64_t batch = logits.size(0), vocab = logits.size(1);
  NEREUS_CHECK(std::ssize(sample_ids) == batch && std::ssize(positions) == batch,
               std::to_string(batch) + " rows of logits");
  const at::Tensor scores = logits.to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor log_probs = at::log_softmax(scores / divisor(params), 1).contiguous();
  at::Tensor allowed = scores, allowed_log_probs = log_probs;
  if (!params.banned_ids.empty()) {
    allowed = scores.index_fill(1, at::tensor(params.banned_ids, at::kLong), kCutOff);
    allowed_log_probs = at::log_softmax(allowed / divisor(params), 1).contiguous();
  }
  at::Tensor probabilities = params.greedy ? at::Tensor() : allowed_log_probs.exp();
  Drawn drawn;
  for (int64_t row = 0; row < batch; ++row) {
    const std::span<const double> logs(log_probs.const_data_ptr<double>() + row * vocab, vocab);
    if (std::ranges::any_of(logs, [](double x) { return std::isnan(x); })) {
      throw_nan(sample_ids[row], positions[row]);
    }
    int64_t token = 0;
    if (params.greedy) {
      token = largest({allowed.const_data_ptr<double>() + row * vocab, logs.size()});
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

Sampler::Sampler(SamplingParams params, at::Device device) : params_(std::move(params)) {
  if (device.is_cpu() || params_.banned_ids.empty()) return;
  banned_ = at::tensor(params_.banned_ids, at::kLong).to(device);
}

void Sampler::draw(const at::Tensor& logits, const at::Tensor& sample_ids,
                   const at::Tensor& positions, at::Tensor& drawn) const {
  if (cuda::takes(logits, 0)) {
    const bool truncates = !params_.greedy && (params_.top_k > 0 || params_.top_p < 1);
    const cuda::Draw how{
        .seed = params_.seed, .temperature = divisor(params_), .greedy = params_.greedy};
    at::Tensor allowed = banned_.defined() ? logits.index_fill(1, banned_, kCutOff) : logits;
    if (truncates) allowed = truncated(allowed, params_);
    return cuda::draw(logits, allowed, sample_ids, positions, how, drawn);
  }
  const at::Tensor ids = sample_ids.to(at::kCPU), places = positions.to(at::kCPU);
  const auto* same_bits = reinterpret_cast<const uint64_t*>(ids.const_data_ptr<int64_t>());
  const auto size = static_cast<size_t>(ids.numel());
  const Drawn next = nereus::draw(logits, std::span(same_bits, size),
                                  std::span(places.const_data_ptr<int64_t>(), size), params_);
  drawn[0].copy_(at::tensor(next.tokens, at::kDouble));
  drawn[1].copy_(at::tensor(next.log_probs, at::kDouble));
}

}  // namespace nereus
