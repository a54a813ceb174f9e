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

// The same for a batch of samples whose responses are equally long, where their logits are: on a
// GPU nothing waits for the host.
class Sampler final {
 public:
  Sampler(const SamplingParams& params, std::vector<uint64_t> sample_ids, at::Device device);
  // logits [batch, vocab] → drawn [2, batch] fp64 on the same device: tokens (exact numbers) and
  // log-probabilities. For NaN logits it throws, or on a GPU gives a NaN log-probability.
  void draw(const at::Tensor& logits, int64_t position, at::Tensor& drawn) const;

 private:
  SamplingParams params_;
  std::vector<uint64_t> sample_ids_;
  at::Tensor ids_on_device_, banned_;
};

[[noreturn]] void throw_nan(uint64_t sample_id, int64_t position);

}  // namespace nereus
