#include "nereus/rl/advantage.h"

#include <gmock/gmock.h>

#include "nereus/base/error.h"
#include "nereus/rl/testing.h"

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

TEST(Whiten, OneTokenIsTooFew) {
  Experience experience(2);
  experience[1].advantages = {3};
  EXPECT_THROW(whiten_advantages(experience), Error);
}

// One response of two tokens per reward, all to prompt `prompt`.
Experience group_of(const std::vector<double>& rewards, int64_t prompt) {
  Experience experience(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    experience[i].prompt_index = prompt;
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
  experience[1].prompt_index = experience[2].prompt_index = 1;
  experience[3].prompt_index = 2;
  group_advantages(experience, /*by_std=*/false);
  EXPECT_THAT(first_advantages(experience), Pointwise(DoubleNear(1e-12), {1.0, 1.0, -1.0, 7.0}));
  group_advantages(experience, /*by_std=*/true);
  EXPECT_NEAR(experience[0].advantages.front(), 1, 2e-6);
  EXPECT_NEAR(experience[3].advantages.front(), 7, 1e-5);
}

TEST(Estimator, NamesAreVerls) {
  EXPECT_EQ(parse_advantage_estimator("gae"), AdvantageEstimator::kGae);
  EXPECT_EQ(parse_advantage_estimator("grpo"), AdvantageEstimator::kGrpo);
  EXPECT_THROW(parse_advantage_estimator("rloo"), Error);
}

}  // namespace
}  // namespace nereus
