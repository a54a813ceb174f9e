#include "nereus/runtime/rl/advantage.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <ranges>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

constexpr double kWhitenEpsilon = 1e-8;
constexpr double kGroupEpsilon = 1e-6;
// Relative to the numbers: what sums of the same numbers in different orders may differ by.
constexpr double kRounding = 64 * std::numeric_limits<double>::epsilon();

auto scored(Experience& experience) { return experience | std::views::filter(&Sample::scored); }
auto scored(const Experience& experience) {
  return experience | std::views::filter(&Sample::scored);
}

// Those of all tokens of the scored samples.
std::vector<double> all_advantages(const Experience& experience) {
  std::vector<double> all;
  for (const Sample& sample : scored(experience)) {
    all.insert(all.end(), sample.advantages.begin(), sample.advantages.end());
  }
  return all;
}

struct Moments {
  double mean = 0;
  double std = 1;
};

double total_reward(const Sample& sample) {
  return std::accumulate(sample.rewards.begin(), sample.rewards.end(), 0.0);
}

// Those of a lone number are 0 and 1: it stays as it is.
Moments moments_of(const std::vector<double>& numbers) {
  const auto count = static_cast<double>(numbers.size());
  if (count < 2) return {};
  const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / count;
  double squares = 0;
  for (const double number : numbers) squares += (number - mean) * (number - mean);
  return {mean, std::sqrt(squares / (count - 1))};
}

// A number of each scored sample, by group.
template <class Number>
std::map<int64_t, std::vector<double>> by_group(const Experience& experience, Number number) {
  std::map<int64_t, std::vector<double>> groups;
  for (const Sample& sample : scored(experience)) {
    groups[sample.group].push_back(std::invoke(number, sample));
  }
  return groups;
}

// Every token of a response gets advantage(total reward, the total rewards of its group), or 0 if
// those of several responses are all equal: their mean need not be equal to them.
template <class Advantage>
void for_each_group(Experience& experience, Advantage advantage) {
  const auto groups = by_group(experience, total_reward);
  for (Sample& sample : scored(experience)) {
    const std::vector<double>& group = groups.at(sample.group);
    const bool tells_nothing = group.size() > 1 && all_equal(group);
    sample.advantages.assign(sample.rewards.size(),
                             tells_nothing ? 0 : advantage(total_reward(sample), group));
  }
}

// So that every vector of a sample has one entry per token.
void zero_unscored(Experience& experience, bool has_returns) {
  for (Sample& sample : experience) {
    if (sample.scored) continue;
    sample.advantages.assign(sample.rewards.size(), 0.0);
    if (has_returns) sample.returns = sample.advantages;
  }
}

}  // namespace

bool all_equal(std::span<const double> numbers) {
  return std::ranges::all_of(numbers, [first = numbers.empty() ? 0 : numbers.front()](double x) {
    return std::abs(x - first) <= kRounding * std::abs(first);
  });
}

std::optional<double> share_of_equal_groups(const Experience& experience) {
  double groups = 0;
  double equal = 0;
  for (const auto& [group, scores] : by_group(experience, &Sample::score)) {
    if (scores.size() < 2) continue;
    ++groups;
    equal += all_equal(scores) ? 1 : 0;
  }
  if (groups == 0) return std::nullopt;
  return equal / groups;
}

void estimate_advantages(Experience& experience, const AdvantageOptions& options) {
  using enum AdvantageEstimator;
  zero_unscored(experience, options.estimator == kGae || options.estimator == kReinforcePlusPlus ||
                                options.estimator == kRemax);
  switch (options.estimator) {
    case kGae:
      for (Sample& sample : scored(experience)) gae(sample, options.gamma, options.lam);
      return whiten_advantages(experience);
    case kGrpo:
      return group_advantages(experience, options.norm_by_std);
    case kRloo:
      return leave_one_out_advantages(experience);
    case kReinforcePlusPlus:
      return reinforce_advantages(experience, options.gamma);
    case kReinforcePlusPlusBaseline:
      return reinforce_baseline_advantages(experience);
    case kRemax:
      return remax_advantages(experience);
  }
}

void gae(Sample& sample, double gamma, double lambda) {
  const std::vector<bool> mask(sample.rewards.size(), true);
  GaeResult result = gae(sample.rewards, sample.values, mask, gamma, lambda);
  sample.advantages = std::move(result.advantages);
  sample.returns = std::move(result.returns);
}

GaeResult gae(const std::vector<double>& rewards, const std::vector<double>& values,
              const std::vector<bool>& mask, double gamma, double lambda) {
  NEREUS_CHECK(rewards.size() == values.size() && rewards.size() == mask.size(),
               "gae: " + std::to_string(rewards.size()) + " rewards, " +
                   std::to_string(values.size()) + " values, " + std::to_string(mask.size()) +
                   " mask entries");
  GaeResult result = {std::vector<double>(rewards.size()), values};
  double next_value = 0;
  double advantage = 0;
  for (size_t t = rewards.size(); t-- > 0;) {
    if (!mask[t]) continue;
    const double td_error = rewards[t] + gamma * next_value - values[t];
    advantage = td_error + gamma * lambda * advantage;
    next_value = values[t];
    result.advantages[t] = advantage;
    result.returns[t] += advantage;
  }
  return result;
}

void whiten_advantages(Experience& experience) {
  const std::vector<double> all = all_advantages(experience);
  const bool tells_nothing = all_equal(all);
  const auto [mean, std] = moments_of(all);
  const double scale = 1 / std::sqrt(std * std + kWhitenEpsilon);
  for (Sample& sample : scored(experience)) {
    for (double& advantage : sample.advantages) {
      advantage = tells_nothing ? 0 : (advantage - mean) * scale;
    }
  }
}

void group_advantages(Experience& experience, bool by_std) {
  for_each_group(experience, [by_std](double reward, const std::vector<double>& group) {
    const auto [mean, std] = moments_of(group);
    return (reward - mean) * (by_std ? 1 / (std + kGroupEpsilon) : 1);
  });
}

void leave_one_out_advantages(Experience& experience) {
  for_each_group(experience, [](double reward, const std::vector<double>& group) {
    const auto count = static_cast<double>(group.size());
    if (count < 2) return reward;
    return (reward - moments_of(group).mean) * count / (count - 1);
  });
}

void reinforce_advantages(Experience& experience, double gamma) {
  for (Sample& sample : scored(experience)) {
    sample.returns = sample.rewards;
    for (size_t t = sample.returns.size(); t-- > 1;) {
      sample.returns[t - 1] += gamma * sample.returns[t];
    }
    sample.advantages = sample.returns;
  }
  whiten_advantages(experience);
}

void remax_advantages(Experience& experience) {
  for (Sample& sample : scored(experience)) {
    sample.returns = sample.rewards;
    for (size_t t = sample.returns.size(); t-- > 1;) sample.returns[t - 1] += sample.returns[t];
    sample.advantages = sample.returns;
    for (double& advantage : sample.advantages) advantage -= sample.baseline;
  }
}

void reinforce_baseline_advantages(Experience& experience) {
  group_advantages(experience, /*by_std=*/false);
  whiten_advantages(experience);
}

}  // namespace nereus
