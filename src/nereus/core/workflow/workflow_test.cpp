#include "nereus/core/workflow/workflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/core/workflow/algorithm.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Workflow grpo_workflow(bool with_reference, bool with_reward_model = false) {
  return make_workflow(algorithm(AdvantageEstimator::kGrpo),
                       {.reference = with_reference, .reward_model = with_reward_model});
}

std::vector<std::string> names_in_order(const Workflow& workflow) {
  std::vector<std::string> names;
  for (const NodeId node : topological_order(workflow)) {
    names.push_back(workflow.at(node).name);
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
  EXPECT_THAT(model_stages(grpo_workflow(false)), ElementsAre(kActorGeneration, kActorTraining));
  EXPECT_EQ(grpo_workflow(false).algorithm, "grpo");
}

TEST(Workflow, PlacesOnlyWhatHoldsState) {
  EXPECT_THAT(model_stages(ppo_workflow(true)),
              ElementsAre(kActorGeneration, kActorTraining, kCriticTraining, kReferenceInference));
  EXPECT_EQ(model_stages(ppo_workflow(false)).size(), 3u);
  EXPECT_THAT(trained_stages(ppo_workflow(true)), ElementsAre(kActorTraining, kCriticTraining));
}

TEST(Workflow, ARewardModelIsPlacedAndNotTrained) {
  for (const auto workflow_of : {ppo_workflow, grpo_workflow}) {
    const Workflow by_rule = workflow_of(true, false), by_model = workflow_of(true, true);
    EXPECT_EQ(names_in_order(by_model), names_in_order(by_rule));
    EXPECT_EQ(by_model.edges, by_rule.edges);
    std::vector<ModelStage> stages = model_stages(by_rule);
    stages.push_back(kRewardInference);
    EXPECT_EQ(model_stages(by_model), stages);
    EXPECT_EQ(trained_stages(by_model), trained_stages(by_rule));
  }
  EXPECT_EQ(Json(ppo_workflow(true, true)).at("nodes").at(4),
            Json::parse(R"({"name": "reward", "pass": "scores", "role": "reward",
                            "stage": "inference", "reads": ["responses"],
                            "writes": ["scores"]})"));
}

constexpr NodeId kA{0}, kB{1}, kC{2}, kD{3};

TEST(Workflow, OrderIsStableAndRefusesCycles) {
  Workflow workflow{"test", {{"a"}, {"b"}, {"c"}, {"d"}}, {{kD, kA}, {kC, kB}}};
  EXPECT_THAT(names_in_order(workflow), ElementsAre("c", "b", "d", "a"));
  workflow.edges.push_back({kB, kC, /*lag=*/1});
  EXPECT_THAT(names_in_order(workflow), ElementsAre("c", "b", "d", "a"));
  workflow.edges.push_back({kB, kC});
  try {
    topological_order(workflow);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_THAT(error.what(), HasSubstr("b waits for itself"));
  }
}

TEST(Workflow, AsynchronousStepsWaitForGenerationOnlyToSynchronise) {
  const Workflow workflow = ppo_workflow(true);
  EXPECT_FALSE(is_asynchronous(workflow));
  const Workflow synchronous = between_syncs(workflow);
  EXPECT_EQ(synchronous.nodes, workflow.nodes);
  EXPECT_EQ(predecessors(synchronous), predecessors(workflow));
  EXPECT_TRUE(is_asynchronous(one_step_off_policy(workflow)));
  const Workflow interval = between_syncs(one_step_off_policy(workflow));
  std::vector<std::string> after_generation;
  for (const WorkflowEdge& edge : interval.edges) {
    EXPECT_EQ(edge.lag, 0);
    if (interval.at(edge.from).name == "gen") {
      after_generation.push_back(interval.at(edge.to).name);
    }
  }
  EXPECT_THAT(after_generation, ElementsAre("update_weights"));
  EXPECT_EQ(topological_order(interval).size(), workflow.nodes.size());
}

// Weights that a step leaves behind are those that the passes of the next one use.
TEST(Workflow, UpdatesReachTheNextStep) {
  const Workflow workflow = ppo_workflow(true);
  std::vector<std::string> lagged;
  for (const WorkflowEdge& edge : workflow.edges) {
    if (edge.lag == 0) continue;
    EXPECT_EQ(edge.lag, 1);
    lagged.push_back(workflow.at(edge.from).name + " > " + workflow.at(edge.to).name);
  }
  EXPECT_THAT(lagged, UnorderedElementsAre("update_critic > values", "update_actor > old_log_prob",
                                           "update_weights > gen"));
}

// What the message must say of the workflow that `damage` makes of PPO's.
void expect_refused(const std::function<void(Workflow&)>& damage, const std::string& message) {
  Workflow workflow = ppo_workflow(true);
  damage(workflow);
  try {
    verify(workflow);
    FAIL() << "expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(Workflow, RefusesWhatCannotBeExecutedByName) {
  expect_refused([](Workflow& w) { w.nodes[1].writes.clear(); }, "reads old_log_probs, which no");
  expect_refused([](Workflow& w) { std::erase(w.edges, WorkflowEdge{kA, kB}); },
                 "old_log_prob reads responses, which no node before it writes");
  expect_refused([](Workflow& w) { w.nodes[1].writes.insert(Field::kValues); },
                 "old_log_prob and values both write values");
  expect_refused([](Workflow& w) { w.edges.push_back({kB, kA}); }, "waits for itself");
  expect_refused([](Workflow& w) { w.edges.push_back({kA, NodeId{99}}); }, "to node 99 of 9");
  expect_refused([](Workflow& w) { w.edges.push_back({kA, kB, -1}); },
                 "gen → old_log_prob has the lag -1");
  expect_refused([](Workflow& w) { w.nodes[0].runs_on.stage = Stage::kTraining; },
                 "gen (generate) runs on actor/training");
  expect_refused([](Workflow& w) { w.nodes[7].runs_on.stage = Stage::kInference; },
                 "update_actor (train) runs on actor/inference");
}

// As time: each device does its nodes in topological order, and nothing else waits.
TEST(WaitsFor, SharedDevicesPutNodesInOrder) {
  const Workflow workflow{
      "test", {{"a"}, {"b"}, {"c"}, {"d"}}, {{kA, kB}, {kA, kC}, {kA, kD, /*lag=*/1}}};
  const DeviceId x{0, 0}, y{0, 1};
  using Devices = std::vector<std::vector<DeviceId>>;
  EXPECT_THAT(waits_for(workflow, Devices{{x, y}, {x}, {y}, {}}),
              ElementsAre(IsEmpty(), ElementsAre(kA), ElementsAre(kA), IsEmpty()));
  EXPECT_THAT(waits_for(workflow, Devices{{x}, {x}, {x}, {x, y}}),
              ElementsAre(IsEmpty(), ElementsAre(kA), ElementsAre(kA, kB), ElementsAre(kC)));
}

TEST(BusyDevices, AreThoseOfTheUnits) {
  const Workflow workflow = ppo_workflow(false);
  const auto stage = [](ModelStage model_stage, int first, int count) {
    StagePlan plan{.model_stage = model_stage};
    for (int i = 0; i < count; ++i) plan.units.push_back({{0, first + i}});
    return plan;
  };
  const Plan plan{
      {stage(kActorGeneration, 1, 2), stage(kActorTraining, 0, 2), stage(kCriticTraining, 3, 1)}};
  const auto devices_of_node = [&](const char* name) {
    const auto node = std::ranges::find(workflow.nodes, name, &WorkflowNode::name);
    return busy_devices(*node, plan);
  };
  EXPECT_THAT(devices_of_node("gen"), ElementsAre(DeviceId{0, 1}, DeviceId{0, 2}));
  EXPECT_THAT(devices_of_node("values"), ElementsAre(DeviceId{0, 3}));
  EXPECT_THAT(devices_of_node("reward"), IsEmpty());
  EXPECT_THAT(devices_of_node("update_weights"),
              ElementsAre(DeviceId{0, 0}, DeviceId{0, 1}, DeviceId{0, 2}));
}

TEST(Workflow, Json) {
  const Json j = ppo_workflow(true);
  EXPECT_EQ(j.at("algorithm"), "gae");
  EXPECT_EQ(j.at("nodes").at(0), Json::parse(R"({"name": "gen", "pass": "generate",
    "role": "actor", "stage": "generation", "reads": [], "writes": ["responses"]})"));
  EXPECT_EQ(j.at("nodes").at(4), Json::parse(R"({"name": "reward", "pass": "reward",
    "reads": ["responses"], "writes": ["scores"]})"));
  EXPECT_EQ(j.at("edges").at(0), Json::parse(R"({"from": "gen", "to": "old_log_prob"})"));
  EXPECT_EQ(j.at("edges").back(),
            Json::parse(R"({"from": "update_weights", "to": "gen", "lag": 1})"));
  EXPECT_EQ(j.at("edges").size(), ppo_workflow(true).edges.size());
}

}  // namespace
}  // namespace nereus
