// Drawing tokens. Noise is a function of (seed, sample, position): the same under every layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nereus/core/workflow/sampling_params.h"

namespace nereus {

struct Drawn {
  std::vector<int64_t> tokens;  // [batch]
  // Under softmax(logits / temperature) of the whole vocabulary, however tokens are chosen: the
  // distribution that training computes.
  std::vector<double> log_probs;
};

// logits [batch, vocab] (whole vocabulary). Inverse-CDF sampling with one uniform number per row:
// uniform({seed, sample_ids[row], positions[row]}). Throws Error(kNumeric) for NaN logits.
Drawn draw(const at::Tensor& logits, std::span<const uint64_t> sample_ids,
           std::span<const int64_t> positions, const SamplingParams& params);

// The same where the logits are: on a GPU nothing waits for the host.
class Sampler final {
 public:
  Sampler(SamplingParams params, at::Device device);
  // logits [batch, vocab]; sample_ids and positions [batch] int64 on the same device → drawn [2,
  // batch] fp64 there: tokens (exact numbers) and log-probabilities. For NaN logits it throws, or
  // on a GPU gives a NaN log-probability.
  void draw(const at::Tensor& logits, const at::Tensor& sample_ids, const at::Tensor& positions,
            at::Tensor& drawn) const;

 private:
  SamplingParams params_;
  at::Tensor banned_;
};

[[noreturn]] void throw_nan(uint64_t sample_id, int64_t position);

}  // namespace nereus
