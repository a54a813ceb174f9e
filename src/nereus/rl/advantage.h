// Advantage estimation, in double precision over the whole batch.
#pragma once

#include <string>
#include <vector>

#include "nereus/rl/sample.h"

namespace nereus {

enum class AdvantageEstimator {
  kGae,
  kGrpo,
  kRloo,
  kReinforcePlusPlus,
  kReinforcePlusPlusBaseline
};
// verl's names: "gae" (PPO), "grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline".
std::string to_string(AdvantageEstimator estimator);
// Throws Error(kInvalidInput) listing them for another.
AdvantageEstimator parse_advantage_estimator(const std::string& name);
// The others compare responses with each other.
inline bool needs_critic(AdvantageEstimator estimator) {
  return estimator == AdvantageEstimator::kGae;
}

struct AdvantageOptions {
  AdvantageEstimator estimator = AdvantageEstimator::kGae;
  bool norm_by_std = true;  // GRPO: divide by the standard deviation of the group
  double gamma = 1;         // GAE and REINFORCE++
  double lam = 1;           // GAE
};
// Fills the advantages of a step's samples from their rewards, and the returns where an estimator
// has them, by one of the functions below.
void estimate_advantages(Experience& experience, const AdvantageOptions& options);

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

// RLOO: R less the mean of the other responses to the prompt. A response alone in its group keeps
// R, as in the first of verl's two versions (the other, rloo_vectorized, gives it 0).
void leave_one_out_advantages(Experience& experience);

// REINFORCE++: returns are the rewards to come, discounted by gamma per token; advantages are
// these, whitened. Throws as whiten_advantages().
void reinforce_advantages(Experience& experience, double gamma);
// REINFORCE++ baseline: R less the mean of the prompt's responses, for each token, whitened over
// the whole batch. A response alone in its group has the mean 0. Throws as whiten_advantages().
void reinforce_baseline_advantages(Experience& experience);

}  // namespace nereus
