// Advantage estimation, in double precision over the whole batch.
#pragma once

#include <string>
#include <vector>

#include "nereus/rl/sample.h"

namespace nereus {

enum class AdvantageEstimator { kGae, kGrpo };
// verl's names: "gae" (PPO), "grpo". Throws Error(kInvalidInput) listing them for another.
AdvantageEstimator parse_advantage_estimator(const std::string& name);

// Generalised advantage estimation over one response (verl's: V after the last token is 0):
// fills advantages (not whitened) and returns = advantages + values.
void gae(Sample& sample, double gamma, double lambda);
// The same with a mask for tokens that the policy did not produce: V and the carried advantage pass
// over masked tokens unchanged (verl's "carry" family). Vectors of equal length T; entries where
// the mask is 0 get advantage 0.
struct GaeResult {
  std::vector<double> advantages;
  std::vector<double> returns;
};
GaeResult gae(const std::vector<double>& rewards, const std::vector<double>& values,
              const std::vector<bool>& mask, double gamma, double lambda);

// verl's masked_whiten over all tokens of all samples: (A - mean) / sqrt(var + 1e-8) with the
// Bessel-corrected variance, two passes. Throws Error(kNumeric) with fewer than two tokens.
void whiten_advantages(Experience& experience);

// GRPO as in verl: with R the sum of a response's rewards, each of its tokens gets
// (R - mean) / (std + 1e-6) over the samples of the same prompt_index, std Bessel-corrected;
// without `by_std` R - mean (Dr. GRPO). A response alone in its group has mean 0 and std 1. Needs
// no values and leaves returns empty.
void group_advantages(Experience& experience, bool by_std);

}  // namespace nereus
