// Advantage estimation, in double precision over the whole batch.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "nereus/core/workflow/objective.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// Fills the advantages of a step's samples from their rewards, and the returns where an estimator
// has them, by one of the functions below. Samples that were not scored get zeros; to the others
// it is as if they were not there. Any number of samples and tokens is legal.
void estimate_advantages(Experience& experience, const AdvantageOptions& options);

// Whether numbers differ by no more than rounding can make them (a few units in the last place);
// not if one is NaN or infinite.
bool all_equal(std::span<const double> numbers);

// The share of the groups of at least two scored responses whose scores are all equal: nothing can
// be learnt from these by comparison. None if there are no such groups.
std::optional<double> share_of_equal_groups(const Experience& experience);

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

// The functions from here on pass over samples that were not scored.

// verl's masked_whiten over all tokens of all samples: (A - mean) / sqrt(var + 1e-8) with the
// Bessel-corrected variance, two passes. Advantages that are all_equal() become exactly 0, so that
// no rounding is blown up; a lone token is such a case (verl refuses it).
void whiten_advantages(Experience& experience);

// GRPO as in verl: with R the sum of a response's rewards, each of its tokens gets
// (R - mean) / (std + 1e-6) over the samples of the same group, std Bessel-corrected; without
// `by_std` R - mean (Dr. GRPO). Exactly 0 if all R of a group are all_equal(). A response alone in
// its group has mean 0 and std 1. Needs no values and leaves returns empty.
void group_advantages(Experience& experience, bool by_std);

// RLOO: R less the mean of the other responses of its group, exactly 0 if all of them are
// all_equal(). A response alone in its group keeps R, as in the first of verl's two versions (the
// other, rloo_vectorized, gives it 0).
void leave_one_out_advantages(Experience& experience);

// REINFORCE++: returns are the rewards to come, discounted by gamma per token; advantages are
// these, whitened.
void reinforce_advantages(Experience& experience, double gamma);
// ReMax: returns are the rewards to come, advantages these less the score of the greedy response to
// the prompt; neither discounted nor whitened (as in verl).
void remax_advantages(Experience& experience);
// REINFORCE++ baseline: R less the mean of its group, for each token, whitened over the whole
// batch. A response alone in its group has the mean 0.
void reinforce_baseline_advantages(Experience& experience);

}  // namespace nereus
