#include "nereus/rl/advantage.h"

#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "nereus/base/error.h"

namespace nereus {

namespace {

constexpr double kWhitenEpsilon = 1e-8;
constexpr double kGroupEpsilon = 1e-6;

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

// Those of a lone number are 0 and 1: it stays as it is.
Moments moments_of(const std::vector<double>& numbers) {
  const auto count = static_cast<double>(numbers.size());
  if (count < 2) return {};
  const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / count;
  double squares = 0;
  for (const double number : numbers) squares += (number - mean) * (number - mean);
  return {mean, std::sqrt(squares / (count - 1))};
}

}  // namespace

AdvantageEstimator parse_advantage_estimator(const std::string& name) {
  if (name == "gae") return AdvantageEstimator::kGae;
  if (name == "grpo") return AdvantageEstimator::kGrpo;
  throw Error(ErrorCode::kInvalidInput,
              "unknown advantage estimator \"" + name + "\": must be gae (PPO) or grpo");
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
  const auto total = [](const Sample& sample) {
    return std::accumulate(sample.rewards.begin(), sample.rewards.end(), 0.0);
  };
  std::map<int64_t, std::vector<double>> groups;
  for (const Sample& sample : experience) groups[sample.prompt_index].push_back(total(sample));
  for (Sample& sample : experience) {
    const auto [mean, std] = moments_of(groups.at(sample.prompt_index));
    const double scale = by_std ? 1 / (std + kGroupEpsilon) : 1;
    sample.advantages.assign(sample.rewards.size(), (total(sample) - mean) * scale);
  }
}

}  // namespace nereus
