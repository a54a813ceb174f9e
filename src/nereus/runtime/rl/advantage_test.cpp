#include "nereus/runtime/rl/advantage.h"

#include <gmock/gmock.h>

#include <cmath>

#include "nereus/core/base/error.h"
#include "nereus/runtime/rl/testing.h"

namespace nereus {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

Experience golden_experience() {
  const Json& g = golden()["gae_contiguous"];
  Experience experience(2);
  for (size_t i = 0; i < experience.size(); ++i) {
    experience[i].rewards = unpadded(g["rewards"][i], g["mask"][i]);
    experience[i].values = unpadded(g["values"][i], g["mask"][i]);
    gae(experience[i], g["gamma"], g["lam"]);
  }
  return experience;
}

TEST(Gae, Golden) {
  const Json& g = golden()["gae_contiguous"];
  const Experience experience = golden_experience();
  for (size_t i = 0; i < experience.size(); ++i) {
    EXPECT_THAT(experience[i].advantages,
                Pointwise(DoubleNear(1e-12), unpadded(g["adv_carry"][i], g["mask"][i])));
    EXPECT_THAT(experience[i].returns,
                Pointwise(DoubleNear(1e-12), unpadded(g["ret_carry"][i], g["mask"][i])));
  }
}

TEST(Gae, GoldenMaskHole) {
  const Json& g = golden()["gae_multiturn_mask_hole"];
  const std::vector<int> mask = g["mask"];
  const GaeResult result =
      gae(g["rewards"].get<std::vector<double>>(), g["values"].get<std::vector<double>>(),
          std::vector<bool>(mask.begin(), mask.end()), g["gamma"], g["lam"]);
  for (size_t t = 0; t < mask.size(); ++t) {
    EXPECT_NEAR(result.advantages[t], mask[t] == 1 ? g["adv_carry"][t].get<double>() : 0, 1e-12);
    if (mask[t] == 0) continue;
    EXPECT_NEAR(result.returns[t], g["ret_carry"][t].get<double>(), 1e-12);
  }
}

TEST(Gae, EmptyResponse) {
  Sample sample;
  gae(sample, 1, 1);
  EXPECT_TRUE(sample.advantages.empty());
}

TEST(Gae, UnequalLengthsAreABug) {
  Sample sample;
  sample.rewards = {1};
  EXPECT_THROW(gae(sample, 1, 1), Error);
}

TEST(Remax, Golden) {
  const Json& g = golden()["remax"];
  const auto rewards = g["token_rewards"].get<std::vector<double>>();
  Experience experience(2);
  for (Sample& sample : experience) {
    sample.rewards = rewards;
    sample.baseline = g["baseline"].get<double>();
  }
  experience[1].scored = false;
  estimate_advantages(experience, {.estimator = AdvantageEstimator::kRemax});
  EXPECT_THAT(experience[0].returns,
              Pointwise(DoubleNear(1e-12), g["returns"].get<std::vector<double>>()));
  EXPECT_THAT(experience[0].advantages,
              Pointwise(DoubleNear(1e-12), g["adv"].get<std::vector<double>>()));
  EXPECT_EQ(experience[1].advantages, std::vector<double>(rewards.size(), 0.0));
  EXPECT_EQ(experience[1].returns, std::vector<double>(rewards.size(), 0.0));
}

// Each token's advantage is what is still to come, less the baseline.
TEST(Remax, CountsOnlyRewardsToCome) {
  Experience experience(1);
  experience[0].rewards = {1, -2, 4};
  experience[0].baseline = 0.5;
  remax_advantages(experience);
  EXPECT_THAT(experience[0].returns, ::testing::ElementsAre(3, 2, 4));
  EXPECT_THAT(experience[0].advantages, ::testing::ElementsAre(2.5, 1.5, 3.5));
}

TEST(Whiten, Golden) {
  const Json& g = golden()["gae_contiguous"];
  Experience experience = golden_experience();
  whiten_advantages(experience);
  for (size_t i = 0; i < experience.size(); ++i) {
    EXPECT_THAT(experience[i].advantages,
                Pointwise(DoubleNear(1e-7), unpadded(g["whiten_verl"][i], g["mask"][i])));
  }
}

TEST(Whiten, EqualAdvantagesBecomeZero) {
  Experience experience(2);
  experience[0].advantages = {3, 3};
  experience[1].advantages = {3};
  whiten_advantages(experience);
  EXPECT_THAT(experience[0].advantages, ::testing::Each(0));
}

TEST(Whiten, EqualAdvantagesThatFloatingPointCannotAverageBecomeZero) {
  for (const double value : {0.7, 0.1, 1.0 / 3, 1e8 + 0.1, -1e-9}) {
    for (size_t tokens = 1; tokens < 12; ++tokens) {
      Experience experience(1);
      experience[0].advantages.assign(tokens, value);
      whiten_advantages(experience);
      EXPECT_THAT(experience[0].advantages, ::testing::Each(0.0)) << tokens << " × " << value;
    }
  }
}

TEST(Whiten, OneTokenOrNoneIsLegal) {
  Experience experience(2);
  whiten_advantages(experience);
  experience[1].advantages = {3};
  whiten_advantages(experience);
  EXPECT_THAT(experience[1].advantages, ::testing::ElementsAre(0.0));
}

TEST(AllEqual, RoundingIsNoDifference) {
  EXPECT_TRUE(all_equal({}));
  const auto equal = [](std::vector<double> numbers) { return all_equal(numbers); };
  EXPECT_TRUE(equal({0.3, 0.1 + 0.2, 0.1 + 0.1 + 0.1}));
  EXPECT_FALSE(equal({0.3, 0.3 + 1e-12}));
  EXPECT_FALSE(equal({1e8 + 0.1, 1e8 + 0.2}));
  EXPECT_FALSE(equal({0, 1e-300}));
  const double nan = std::nan("");
  EXPECT_FALSE(equal({0.7, nan, 0.7}));
  EXPECT_FALSE(equal({nan, nan}));
  EXPECT_FALSE(equal({INFINITY, INFINITY}));
}

// One response of two tokens per reward, all to prompt `prompt`.
Experience group_of(const std::vector<double>& rewards, int64_t prompt) {
  Experience experience(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    experience[i].group = prompt;
    experience[i].rewards = {0.25, rewards[i] - 0.25};
  }
  return experience;
}

std::vector<double> first_advantages(const Experience& experience) {
  std::vector<double> firsts;
  for (const Sample& sample : experience) {
    EXPECT_EQ(sample.advantages, std::vector(2, sample.advantages.front()));
    firsts.push_back(sample.advantages.front());
  }
  return firsts;
}

TEST(Group, Golden) {
  for (const char* name : {"group_mixed", "group_all_same"}) {
    const Json& g = golden()[name];
    Experience experience = group_of(g["rewards"], 3);
    group_advantages(experience, /*by_std=*/true);
    EXPECT_THAT(first_advantages(experience),
                Pointwise(DoubleNear(1e-12), g["verl_grpo_eps1e-6"].get<std::vector<double>>()));
    group_advantages(experience, /*by_std=*/false);
    EXPECT_THAT(first_advantages(experience),
                Pointwise(DoubleNear(1e-12), g["dr_grpo"].get<std::vector<double>>()));
  }
}

// Groups are by prompt, in whatever order their samples come; a group of one keeps its reward.
TEST(Group, SamplesOfAPromptNeedNotBeNeighbours) {
  Experience experience = group_of({1, 5, 3, 7}, 0);
  experience[1].group = experience[2].group = 1;
  experience[3].group = 2;
  group_advantages(experience, /*by_std=*/false);
  EXPECT_THAT(first_advantages(experience), Pointwise(DoubleNear(1e-12), {1.0, 1.0, -1.0, 7.0}));
  group_advantages(experience, /*by_std=*/true);
  EXPECT_NEAR(experience[0].advantages.front(), 1, 2e-6);
  EXPECT_NEAR(experience[3].advantages.front(), 7, 1e-5);
}

TEST(LeaveOneOut, Golden) {
  for (const char* name : {"group_mixed", "group_all_same"}) {
    const Json& g = golden()[name];
    Experience experience = group_of(g["rewards"], 3);
    leave_one_out_advantages(experience);
    EXPECT_THAT(first_advantages(experience),
                Pointwise(DoubleNear(1e-12), g["rloo"].get<std::vector<double>>()));
  }
}

TEST(LeaveOneOut, OthersOfTheSamePromptAreTheBaseline) {
  Experience experience = group_of({1, 5, 3, 7, 4}, 0);
  experience[1].group = experience[2].group = 1;
  experience[3].group = 2;
  leave_one_out_advantages(experience);
  EXPECT_THAT(first_advantages(experience),
              Pointwise(DoubleNear(1e-12), {1.0 - 4, 5.0 - 3, 3.0 - 5, 7.0, 4.0 - 1}))
      << "the one alone keeps its reward";
}

// Two responses of three and two tokens, to prompts of their own.
Experience two_responses() {
  Experience experience(2);
  experience[0].rewards = {0, 0, 1};
  experience[1].rewards = {0, -1};
  experience[1].group = 1;
  return experience;
}

// By hand: returns 1, 1, 1, -1, -1 have mean 0.2 and variance 1.2.
TEST(Reinforce, WhitensTheRewardsToCome) {
  Experience experience = two_responses();
  reinforce_advantages(experience, /*gamma=*/1);
  EXPECT_THAT(experience[0].returns, ::testing::ElementsAre(1, 1, 1));
  const std::vector<double> positive(3, 0.8 / std::sqrt(1.2)), negative(2, -1.2 / std::sqrt(1.2));
  EXPECT_THAT(experience[0].advantages, Pointwise(DoubleNear(1e-7), positive));
  EXPECT_THAT(experience[1].advantages, Pointwise(DoubleNear(1e-7), negative));
}

TEST(Reinforce, DiscountsByToken) {
  Experience experience = two_responses();
  reinforce_advantages(experience, /*gamma=*/0.5);
  EXPECT_THAT(experience[0].returns, ::testing::ElementsAre(0.25, 0.5, 1));
  EXPECT_THAT(experience[1].returns, ::testing::ElementsAre(-0.5, -1));
  const double mean = 0.05, variance = (0.04 + 0.2025 + 0.9025 + 0.3025 + 1.1025) / 4;
  EXPECT_NEAR(experience[0].advantages[1], (0.5 - mean) / std::sqrt(variance), 1e-7);
}

// By hand: less their prompt's mean, the tokens' rewards are 1, 1 (of a lone response), -1, -1,
// 1, 1.
TEST(ReinforceBaseline, WhitensOverTheBatchWhatIsLessTheMeanOfThePrompt) {
  Experience experience = group_of({1, 3, 5}, 0);
  experience[0].group = 1;
  reinforce_baseline_advantages(experience);
  const double mean = 1.0 / 3, std = std::sqrt((4 * 4.0 / 9 + 2 * 16.0 / 9) / 5);
  EXPECT_THAT(first_advantages(experience),
              Pointwise(DoubleNear(1e-7), {(1 - mean) / std, (-1 - mean) / std, (1 - mean) / std}));
}

const AdvantageEstimator kWithoutCritic[] = {AdvantageEstimator::kGrpo, AdvantageEstimator::kRloo,
                                             AdvantageEstimator::kReinforcePlusPlus,
                                             AdvantageEstimator::kReinforcePlusPlusBaseline};

// What makes advantages independent of how a batch is cut into parts: they follow the sample, in
// whatever order samples come.
TEST(Estimator, AdvantagesFollowTheirSamples) {
  for (const AdvantageEstimator estimator : kWithoutCritic) {
    Experience experience = group_of({1, 5, 3, 7, 4, -2}, 0);
    for (size_t i = 0; i < experience.size(); ++i) {
      experience[i].group = static_cast<int64_t>(i) / 2;
    }
    Experience reversed(experience.rbegin(), experience.rend());
    estimate_advantages(experience, {.estimator = estimator});
    estimate_advantages(reversed, {.estimator = estimator});
    for (size_t i = 0; i < experience.size(); ++i) {
      EXPECT_THAT(reversed[reversed.size() - 1 - i].advantages,
                  Pointwise(DoubleNear(1e-12), experience[i].advantages))
          << to_string(estimator) << ", sample " << i;
    }
  }
}

constexpr AdvantageEstimator kAll[] = {
    AdvantageEstimator::kGae, AdvantageEstimator::kGrpo, AdvantageEstimator::kRloo,
    AdvantageEstimator::kReinforcePlusPlus, AdvantageEstimator::kReinforcePlusPlusBaseline};

// Responses of unlike lengths, none and one token among them, in groups of unlike sizes.
Experience mixed_batch() {
  const std::vector<int64_t> groups = {0, 0, 0, 1, 1, 2, 3, 3};
  const std::vector<size_t> lengths = {3, 1, 2, 4, 0, 2, 1, 5};
  Experience experience(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    experience[i].group = groups[i];
    experience[i].score = 0.3 * static_cast<double>(i * i % 5);
    experience[i].rewards.assign(lengths[i], 0.0);
    if (lengths[i] > 0) experience[i].rewards.back() = experience[i].score;
    for (size_t t = 0; t < lengths[i]; ++t) {
      experience[i].values.push_back(0.1 * static_cast<double>(t) - 0.2 * static_cast<double>(i));
    }
  }
  return experience;
}

// Whichever samples could not be scored, to the others it is as if they were not there.
TEST(Estimator, UnscoredSamplesChangeNothing) {
  for (const AdvantageEstimator estimator : kAll) {
    for (unsigned unscored = 0; unscored < 1U << 8; ++unscored) {
      Experience experience = mixed_batch(), without;
      for (size_t i = 0; i < experience.size(); ++i) {
        experience[i].scored = (unscored >> i & 1) == 0;
        if (experience[i].scored) without.push_back(experience[i]);
      }
      EXPECT_EQ(share_of_equal_groups(experience), share_of_equal_groups(without));
      estimate_advantages(experience, {.estimator = estimator, .gamma = 0.9, .lam = 0.8});
      estimate_advantages(without, {.estimator = estimator, .gamma = 0.9, .lam = 0.8});
      size_t next = 0;
      for (const Sample& sample : experience) {
        if (sample.scored) {
          EXPECT_EQ(sample.advantages, without[next].advantages) << to_string(estimator);
          EXPECT_EQ(sample.returns, without[next++].returns) << to_string(estimator);
        } else {
          EXPECT_EQ(sample.advantages, std::vector(sample.rewards.size(), 0.0));
        }
      }
    }
  }
}

// Floating point does not average seven times 0.7 to 0.7, and Adam makes steps of any gradient.
TEST(Estimator, EqualRewardsTeachExactlyNothing) {
  for (const AdvantageEstimator estimator : kWithoutCritic) {
    for (const double reward : {0.7, 0.1, 1.0 / 3, 1e8 + 0.1, -0.7, 0.0, 1e-9}) {
      for (size_t size = 2; size < 20; ++size) {
        Experience experience = group_of(std::vector(size, reward), 0);
        for (Sample& sample : experience) sample.rewards = {0, reward};
        estimate_advantages(experience, {.estimator = estimator});
        for (const Sample& sample : experience) {
          EXPECT_THAT(sample.advantages, ::testing::Each(0.0))
              << to_string(estimator) << ": " << size << " × " << reward;
        }
      }
    }
  }
}

TEST(Estimator, ABatchOfOneTokenOrNoneIsLegal) {
  for (const AdvantageEstimator estimator : kAll) {
    for (const size_t tokens : {0, 1}) {
      Experience experience(1);
      experience[0].rewards.assign(tokens, 2.5);
      experience[0].values.assign(tokens, 1);
      estimate_advantages(experience, {.estimator = estimator});
      ASSERT_EQ(experience[0].advantages.size(), tokens);
      for (const double advantage : experience[0].advantages) {
        EXPECT_TRUE(std::isfinite(advantage)) << to_string(estimator);
      }
    }
  }
}

TEST(Estimator, GroupsThatTeachNothingAreCounted) {
  Experience experience = mixed_batch();
  for (Sample& sample : experience) sample.score = 0.1;
  EXPECT_EQ(share_of_equal_groups(experience), 1) << "of the three groups of several responses";
  experience[1].score = 0.2;
  EXPECT_DOUBLE_EQ(share_of_equal_groups(experience).value(), 2.0 / 3);
  experience[1].scored = false;
  EXPECT_EQ(share_of_equal_groups(experience), 1);
  EXPECT_EQ(share_of_equal_groups({experience[5]}), std::nullopt) << "a lone response";
}

TEST(Estimator, NanIsNotHidden) {
  for (const AdvantageEstimator estimator : kWithoutCritic) {
    Experience experience = group_of({0.7, std::nan(""), 0.7}, 0);
    estimate_advantages(experience, {.estimator = estimator});
    EXPECT_TRUE(std::isnan(experience[0].advantages.front())) << to_string(estimator);
  }
}

TEST(Estimator, EachDoesAsItIsCalled) {
  const auto firsts_by = [](AdvantageEstimator estimator) {
    Experience experience = group_of({1, 2, 6}, 0);
    estimate_advantages(experience, {.estimator = estimator, .norm_by_std = false});
    return experience[2].advantages.back();
  };
  EXPECT_NEAR(firsts_by(AdvantageEstimator::kGrpo), 3, 1e-12);
  EXPECT_NEAR(firsts_by(AdvantageEstimator::kRloo), 4.5, 1e-12);
  Experience returned = group_of({1, 2, 6}, 0);
  estimate_advantages(returned, {.estimator = AdvantageEstimator::kReinforcePlusPlus});
  EXPECT_THAT(returned[2].returns, ::testing::ElementsAre(6, 5.75));
  // Without returns to come, whitened differences of 3, 2 and 1 to the mean.
  EXPECT_NEAR(firsts_by(AdvantageEstimator::kReinforcePlusPlusBaseline), 3 / std::sqrt(28.0 / 5),
              1e-7);
}

}  // namespace
}  // namespace nereus
