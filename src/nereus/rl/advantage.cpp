#include "nereus/rl/advantage.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/base/text.h"

namespace nereus {

namespace {

constexpr double kWhitenEpsilon = 1e-8;
constexpr double kGroupEpsilon = 1e-6;

// In the order of AdvantageEstimator.
constexpr std::array<const char*, 5> kNames = {"gae", "grpo", "rloo", "reinforce_plus_plus",
                                               "reinforce_plus_plus_baseline"};

// Calls visit(advantage) for every token of every sample.
template <class Samples, class Visit>
void for_each_advantage(Samples& experience, Visit visit) {
  for (auto& sample : experience) {
    for (auto& advantage : sample.advantages) visit(advantage);
  }
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

// Every token of a response gets advantage(total reward, the total rewards of its prompt's
// responses).
template <class Advantage>
void for_each_group(Experience& experience, Advantage advantage) {
  std::map<int64_t, std::vector<double>> groups;
  for (const Sample& sample : experience) {
    groups[sample.prompt_index].push_back(total_reward(sample));
  }
  for (Sample& sample : experience) {
    const std::vector<double>& group = groups.at(sample.prompt_index);
    sample.advantages.assign(sample.rewards.size(), advantage(total_reward(sample), group));
  }
}

}  // namespace

std::string to_string(AdvantageEstimator estimator) {
  return kNames.at(static_cast<size_t>(estimator));
}

AdvantageEstimator parse_advantage_estimator(const std::string& name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<AdvantageEstimator>(found - kNames.begin());
  throw Error(ErrorCode::kInvalidInput,
              "unknown advantage estimator \"" + name + "\": must be " +
                  join(std::vector<std::string>(kNames.begin(), kNames.end()), ", "));
}

void estimate_advantages(Experience& experience, const AdvantageOptions& options) {
  switch (options.estimator) {
    case AdvantageEstimator::kGae:
      for (Sample& sample : experience) gae(sample, options.gamma, options.lam);
      return whiten_advantages(experience);
    case AdvantageEstimator::kGrpo:
      return group_advantages(experience, options.norm_by_std);
    case AdvantageEstimator::kRloo:
      return leave_one_out_advantages(experience);
    case AdvantageEstimator::kReinforcePlusPlus:
      return reinforce_advantages(experience, options.gamma);
    case AdvantageEstimator::kReinforcePlusPlusBaseline:
      return reinforce_baseline_advantages(experience);
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
  double sum = 0;
  double tokens = 0;
  for_each_advantage(experience, [&](double advantage) {
    sum += advantage;
    ++tokens;
  });
  if (tokens < 2) {
    throw Error(ErrorCode::kNumeric, "advantages of " + std::to_string(int64_t(tokens)) +
                                         " tokens cannot be whitened; at least 2 are needed");
  }
  const double mean = sum / tokens;
  double squares = 0;
  for_each_advantage(experience,
                     [&](double advantage) { squares += (advantage - mean) * (advantage - mean); });
  const double scale = 1 / std::sqrt(squares / (tokens - 1) + kWhitenEpsilon);
  for_each_advantage(experience,
                     [&](double& advantage) { advantage = (advantage - mean) * scale; });
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
  for (Sample& sample : experience) {
    sample.returns = sample.rewards;
    for (size_t t = sample.returns.size(); t-- > 1;) {
      sample.returns[t - 1] += gamma * sample.returns[t];
    }
    sample.advantages = sample.returns;
  }
  whiten_advantages(experience);
}

void reinforce_baseline_advantages(Experience& experience) {
  group_advantages(experience, /*by_std=*/false);
  whiten_advantages(experience);
}

}  // namespace nereus
