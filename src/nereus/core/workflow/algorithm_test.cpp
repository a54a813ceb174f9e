#include "nereus/core/workflow/algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;

TEST(Algorithms, NamesAreVerls) {
  std::vector<std::string> names;
  for (const Algorithm& row : algorithms()) {
    names.emplace_back(row.name);
    EXPECT_EQ(parse_advantage_estimator(row.name), row.estimator);
    EXPECT_EQ(to_string(row.estimator), row.name);
    EXPECT_EQ(row.critic, row.estimator == AdvantageEstimator::kGae);
  }
  EXPECT_THAT(names, ElementsAre("gae", "grpo", "rloo", "reinforce_plus_plus",
                                 "reinforce_plus_plus_baseline", "remax"));
  EXPECT_THROW(parse_advantage_estimator("gea"), Error);
}

TEST(Algorithms, EveryRowMakesAWorkflowThatCanBeExecuted) {
  for (const Algorithm& row : algorithms()) {
    for (int choice = 0; choice < 8; ++choice) {
      const Workflow workflow = make_workflow(row, {.reference = (choice & 1) != 0,
                                                    .reward_model = (choice & 2) != 0,
                                                    .old_log_probs = (choice & 4) != 0});
      EXPECT_NO_THROW(verify(workflow)) << row.name;
      EXPECT_EQ(workflow.algorithm, row.name);
    }
  }
}

TEST(Algorithms, RemaxScoresAGreedyResponseToEachPrompt) {
  const Workflow workflow = make_workflow(algorithm(AdvantageEstimator::kRemax), {});
  std::vector<std::string> names, of_baselines;
  for (const WorkflowNode& node : workflow.nodes) {
    names.push_back(node.name);
    if (is_of_baselines(node)) of_baselines.push_back(node.name);
  }
  EXPECT_THAT(names, ElementsAre("gen", "gen_max", "old_log_prob", "reward", "reward_max", "adv",
                                 "update_actor", "update_weights"));
  EXPECT_THAT(of_baselines, ElementsAre("gen_max", "reward_max"));
  EXPECT_TRUE(workflow.nodes[5].reads.contains(Field::kBaselineScores));
}

// Without a pass of their own the old log-probabilities come from the update's forward pass.
TEST(Algorithms, OldLogProbabilitiesAreAlwaysWrittenOnce) {
  for (const bool own_pass : {true, false}) {
    const Workflow workflow = make_workflow(algorithm(AdvantageEstimator::kGrpo),
                                            {.reference = true, .old_log_probs = own_pass});
    std::vector<std::string> writers;
    for (const WorkflowNode& node : workflow.nodes) {
      if (node.writes.contains(Field::kOldLogProbs)) writers.push_back(node.name);
    }
    EXPECT_THAT(writers, ElementsAre(own_pass ? "old_log_prob" : "update_actor"));
  }
}

}  // namespace
}  // namespace nereus
