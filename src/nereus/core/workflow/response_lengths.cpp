#include "nereus/core/workflow/response_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nereus {
namespace {

constexpr double kNearlyUniform = 1e-4;  // a steepness below that is none

// The mean of the density ∝ e^(-κx) on [0, 1], and its slope in κ.
struct MeanOf {
  double mean = 0.5;
  double slope = -1.0 / 12;
};
MeanOf mean_of(double steepness) {
  if (std::abs(steepness) < kNearlyUniform) return {0.5 - steepness / 12, -1.0 / 12};
  const double grown = std::expm1(steepness);
  const double inverse = 1 / steepness;
  return {inverse - 1 / grown, -inverse * inverse + (grown + 1) / (grown * grown)};
}

// Solves mean_of(κ) = mean. The mean is Langevin's function of -κ/2; Cohen's rational inverse is
// within 5 %, and Newton does the rest.
double steepness_of(double mean) {
  const double y = 1 - 2 * mean;
  double steepness = 2 * y * (3 - y * y) / (1 - y * y);
  for (int i = 0; i < 3; ++i) {
    const MeanOf at = mean_of(steepness);
    steepness -= (at.mean - mean) / at.slope;
  }
  return steepness;
}

double interpolate(const std::vector<double>& values, double probability) {
  const double place = probability * double(values.size() - 1);
  const size_t below = std::min(static_cast<size_t>(place), values.size() - 2);
  return std::lerp(values[below], values[below + 1], place - double(below));
}

// The share of the batch that is still there at the end of each phase: finer at both ends, down to
// half a sequence, which stands for the longest one.
std::vector<double> shares_left(double sequences) {
  std::vector<double> shares = {1, 63.0 / 64, 15.0 / 16};
  for (int eighths = 7; eighths >= 1; --eighths) shares.push_back(eighths / 8.0);
  const double last = std::min(0.5, 0.5 / sequences);
  std::erase_if(shares, [&](double share) { return share <= last; });
  while (shares.back() / 2 > last) shares.push_back(shares.back() / 2);
  shares.push_back(last);
  return shares;
}

}  // namespace

ResponseLengths::ResponseLengths(const Workload& workload)
    : limit_(double(workload.response_limit)), quantiles_(workload.response_quantiles) {
  const double mean = std::min(workload.response_mean, limit_);
  if (!quantiles_.empty()) {
    // Trapezoids: the two ends count half.
    const double sum = std::accumulate(quantiles_.begin(), quantiles_.end(), 0.0) -
                       (quantiles_.front() + quantiles_.back()) / 2;
    const double scale = mean * double(quantiles_.size() - 1) / sum;
    for (double& length : quantiles_) length *= scale;
    return;
  }
  // Numbers of order e^κ must stay finite.
  constexpr double kNarrowest = 1e-2;
  constant_ = mean >= limit_ * (1 - kNarrowest);
  if (!constant_) steepness_ = steepness_of(std::max(mean / limit_, kNarrowest));
}

double ResponseLengths::quantile(double probability) const {
  if (!quantiles_.empty()) return std::min(limit_, interpolate(quantiles_, probability));
  if (constant_) return limit_;
  if (std::abs(steepness_) < kNearlyUniform) return limit_ * probability;
  return std::min(limit_, -limit_ / steepness_ * std::log1p(probability * std::expm1(-steepness_)));
}

std::vector<DecodePhase> decode_phases(const Workload& workload, double sequences) {
  const ResponseLengths lengths(workload);
  std::vector<DecodePhase> phases;
  double before = 0, share_before = 1;
  for (double share : shares_left(sequences)) {
    const double until = lengths.quantile(1 - share);
    if (until > before) {
      phases.push_back(
          {until - before, sequences * (share_before + share) / 2, (before + until) / 2});
    }
    before = std::max(before, until);
    share_before = share;
  }
  return phases;
}

double most_cached_tokens(const Workload& workload, double sequences) {
  const ResponseLengths lengths(workload);
  double most = 0;
  for (double share : shares_left(sequences)) {
    const double each = double(workload.prompt_tokens) + lengths.quantile(1 - share);
    most = std::max(most, std::ceil(share * sequences) * each);
  }
  return most;
}

}  // namespace nereus
