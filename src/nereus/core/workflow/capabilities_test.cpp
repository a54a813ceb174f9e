#include "nereus/core/workflow/capabilities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

void expect_refused(const std::function<void(StagePlan&, ModelSpec&)>& ask, const char* what) {
  JobSpec job{.workflow = ppo_workflow(false), .models = {{Role::kActor, {}}}};
  Plan plan{{{.model_stage = kActorTraining, .units = {{{0, 0}}}}}};
  EXPECT_NO_THROW(verify_runnable(plan, job));
  ask(plan.stages.front(), job.models.at(Role::kActor).spec);
  try {
    verify_runnable(plan, job);
    FAIL() << what << " is accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_THAT(error.what(), ::testing::StartsWith(std::string("actor/training: ") + what));
  }
}

TEST(Capabilities, WhatCannotBeRunIsRefusedByName) {
  expect_refused([](StagePlan& stage, ModelSpec&) { stage.offload = true; }, "offload");
  expect_refused([](StagePlan& stage, ModelSpec&) { stage.layout.zero = 2; }, "zero 2");
  expect_refused([](StagePlan& stage, ModelSpec&) { stage.layout.ep = 4; }, "ep 4");
  expect_refused([](StagePlan&, ModelSpec& model) { model.num_experts = 8; }, "a mixture");
}

}  // namespace
}  // namespace nereus
