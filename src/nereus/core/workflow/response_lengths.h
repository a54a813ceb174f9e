// How long the responses of a step are, one by one: decoding ends with the longest of a batch, and
// a cache holds what is still being written.
#pragma once

#include <vector>

#include "nereus/core/workflow/job_spec.h"

namespace nereus {

// The inverse of the distribution function of response lengths. From workload.response_quantiles if
// there are any, scaled to response_mean; else the distribution of largest entropy on
// [0, response_limit] with mean response_mean: exponential and cut off at the limit, uniform at
// half of it, all responses at the limit if the mean is. Both grow everywhere with response_mean.
class ResponseLengths {
 public:
  explicit ResponseLengths(const Workload& workload);
  // Tokens; 0 ≤ probability ≤ 1, never more than response_limit.
  double quantile(double probability) const;

 private:
  double limit_ = 0;
  double steepness_ = 0;           // κ of the density ∝ e^(-κ x / limit)
  bool constant_ = false;          // all at the limit
  std::vector<double> quantiles_;  // at evenly spaced probabilities, from 0 to 1
};

// A batch of sequences that shrinks as they end: for so many steps there are so many, each so long.
struct DecodePhase {
  double steps = 0;
  double sequences = 0;  // mean, falls from phase to phase
  double length = 0;     // of the responses half-way through the phase, tokens
};
// From the full batch to its longest response, with phases finer where few are left.
std::vector<DecodePhase> decode_phases(const Workload& workload, double sequences);

// The most tokens (prompts and responses) that `sequences` started together have at one time, if
// each leaves when it ends.
double most_cached_tokens(const Workload& workload, double sequences);

}  // namespace nereus
