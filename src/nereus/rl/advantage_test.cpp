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

}  // namespace
}  // namespace nereus
