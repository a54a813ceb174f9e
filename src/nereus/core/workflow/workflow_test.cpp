#include "nereus/core/workflow/workflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nereus {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_in_order(const Workflow& workflow) {
  std::vector<std::string> names;
  for (int node : topological_order(workflow)) {
    names.push_back(workflow.nodes[static_cast<size_t>(node)].name);
  }
  return names;
}

TEST(Workflow, PpoStepInOrder) {
  EXPECT_THAT(names_in_order(ppo_workflow(true)),
              ElementsAre("gen", "old_log_prob", "ref", "values", "reward", "adv", "update_critic",
                          "update_actor", "update_weights"));
  EXPECT_THAT(names_in_order(ppo_workflow(false)),
              ElementsAre("gen", "old_log_prob", "values", "reward", "adv", "update_critic",
                          "update_actor", "update_weights"));
}

TEST(Workflow, GrpoStepHasNoCritic) {
  EXPECT_THAT(
      names_in_order(grpo_workflow(true)),
      ElementsAre("gen", "old_log_prob", "ref", "reward", "adv", "update_actor", "update_weights"));
  EXPECT_THAT(model_stages(grpo_workflow(false)),
              ElementsAre(ModelStage{Role::kActor, Stage::kGeneration},
                          ModelStage{Role::kActor, Stage::kTraining}));
  EXPECT_EQ(grpo_workflow(false).algorithm, "grpo");
}

TEST(Workflow, PlacesOnlyWhatHoldsState) {
  EXPECT_THAT(model_stages(ppo_workflow(true)),
              ElementsAre(ModelStage{Role::kActor, Stage::kGeneration},
                          ModelStage{Role::kActor, Stage::kTraining},
                          ModelStage{Role::kCritic, Stage::kTraining},
                          ModelStage{Role::kReference, Stage::kInference}));
  EXPECT_EQ(model_stages(ppo_workflow(false)).size(), 3u);
  EXPECT_THAT(trained_stages(ppo_workflow(true)),
              ElementsAre(ModelStage{Role::kActor, Stage::kTraining},
                          ModelStage{Role::kCritic, Stage::kTraining}));
}

TEST(Workflow, ARewardModelIsPlacedAndNotTrained) {
  constexpr ModelStage kRewardModel{Role::kReward, Stage::kInference};
  for (const auto workflow_of : {ppo_workflow, grpo_workflow}) {
    const Workflow by_rule = workflow_of(true, false), by_model = workflow_of(true, true);
    EXPECT_EQ(names_in_order(by_model), names_in_order(by_rule));
    EXPECT_EQ(by_model.edges, by_rule.edges);
    std::vector<ModelStage> stages = model_stages(by_rule);
    stages.push_back(kRewardModel);
    EXPECT_EQ(model_stages(by_model), stages);
    EXPECT_EQ(trained_stages(by_model), trained_stages(by_rule));
  }
  EXPECT_EQ(Json(ppo_workflow(true, true)).at("nodes").at(4),
            Json::parse(R"({"name": "reward", "pass": "scores", "role": "reward",
                            "stage": "inference"})"));
}

TEST(Workflow, OrderIsStableAndRefusesCycles) {
  Workflow workflow{"test", {{"a"}, {"b"}, {"c"}, {"d"}}, {{3, 0}, {2, 1}}};
  EXPECT_THAT(names_in_order(workflow), ElementsAre("c", "b", "d", "a"));
  workflow.edges.emplace_back(1, 2);
  try {
    topological_order(workflow);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
  }
}

TEST(Workflow, AsynchronousStepsWaitForGenerationOnlyToSynchronise) {
  Workflow workflow = ppo_workflow(true);
  EXPECT_EQ(between_syncs(workflow), workflow);
  workflow.asynchronous = true;
  const Workflow interval = between_syncs(workflow);
  std::vector<std::string> after_generation;
  for (const auto& [from, to] : interval.edges) {
    if (interval.nodes[static_cast<size_t>(from)].name == "gen") {
      after_generation.push_back(interval.nodes[static_cast<size_t>(to)].name);
    }
  }
  EXPECT_THAT(after_generation, ElementsAre("update_weights"));
  EXPECT_EQ(topological_order(interval).size(), workflow.nodes.size());
}

TEST(Workflow, Json) {
  const Json j = ppo_workflow(true);
  EXPECT_EQ(j.at("algorithm"), "gae");
  EXPECT_EQ(j.at("nodes").at(0), Json::parse(R"({"name": "gen", "pass": "generate",
    "role": "actor", "stage": "generation"})"));
  EXPECT_EQ(j.at("nodes").at(4), Json::parse(R"({"name": "reward", "pass": "reward"})"));
  EXPECT_EQ(j.at("edges").at(0), Json::parse(R"({"from": "gen", "to": "old_log_prob"})"));
  EXPECT_EQ(j.at("edges").back(),
            Json::parse(R"({"from": "update_actor", "to": "update_weights"})"));
  EXPECT_EQ(j.at("edges").size(), ppo_workflow(true).edges.size());
}

}  // namespace
}  // namespace nereus
