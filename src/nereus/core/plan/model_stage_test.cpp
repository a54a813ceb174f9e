#include "nereus/core/plan/model_stage.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

TEST(ModelStage, WordsRoundTrip) {
  for (Role role : {Role::kActor, Role::kCritic, Role::kReference, Role::kReward}) {
    EXPECT_EQ(parse_role(to_string(role)), role);
  }
  for (Stage stage : {Stage::kGeneration, Stage::kInference, Stage::kTraining}) {
    EXPECT_EQ(parse_stage(to_string(stage)), stage);
  }
  EXPECT_EQ(to_string(ModelStage{Role::kReference, Stage::kInference}), "reference/inference");
}

TEST(ModelStage, ErrorsListTheLegalWords) {
  try {
    parse_role("policy");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown role \"policy\"; legal: actor, critic, reference, reward");
  }
  EXPECT_THROW(parse_stage("rollout"), Error);
}

}  // namespace
}  // namespace nereus
