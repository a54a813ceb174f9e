// Plans whose model-stages lie side by side: they run at once, and change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::tiny_job;
using testing::uniform_plan;

struct Place {
  Layout layout{1, 1};
  int first = 0;
  int dp = 1;
};

Plan plan_of(const std::map<ModelStage, Place>& places) {
  Plan plan;
  for (const auto& [model_stage, place] : places) {
    StagePlan stage{.model_stage = model_stage, .layout = place.layout, .micro_batch = 2};
    int next = place.first;
    for (int unit = 0; unit < place.dp; ++unit) {
      stage.units.emplace_back();
      for (int rank = 0; rank < place.layout.devices(); ++rank) {
        stage.units.back().push_back({0, next++});
      }
    }
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

// Actor on two devices, critic and reference on one each.
Plan three_groups() {
  return plan_of({{kActorGeneration, {{1, 1}, 0, 2}},
                  {kActorTraining, {{2, 1}, 0, 1}},
                  {kCriticTraining, {{1, 1}, 2, 1}},
                  {kReferenceInference, {{1, 1}, 3, 1}}});
}

const Span& span_of(const StepReport& report, const std::string& name) {
  return *std::ranges::find(report.spans, name, &Span::name);
}

bool overlap(const StepReport& report, const std::string& a, const std::string& b) {
  const Span &first = span_of(report, a), &second = span_of(report, b);
  return first.start < second.end && second.start < first.end;
}

TEST(SideBySide, DisjointModelStagesRunAtOnceAndOthersInTurn) {
  const LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/3);
  LiveJob job(options, three_groups());
  while (!job.done()) {
    const StepReport report = job.run_step();
    EXPECT_TRUE(overlap(report, "old_log_prob", "values")) << report.step;
    EXPECT_TRUE(overlap(report, "update_critic", "update_actor")) << report.step;
    EXPECT_FALSE(overlap(report, "gen", "old_log_prob"));
    EXPECT_EQ(span_of(report, "ref").devices, std::vector<DeviceId>({{0, 3}}));
    EXPECT_EQ(span_of(report, "update_weights").devices, std::vector<DeviceId>({{0, 0}, {0, 1}}));
    EXPECT_TRUE(span_of(report, "adv").devices.empty());
  }
  LiveJob colocated(options, uniform_plan(options, {1, 1}, 4));
  const StepReport report = colocated.run_step();
  EXPECT_LT(span_of(report, "reward").start, span_of(report, "old_log_prob").end)
      << "the host waited for the devices";
  for (const char* pass : {"old_log_prob", "ref", "values", "update_critic"}) {
    for (const char* other : {"gen", "update_actor"}) {
      EXPECT_FALSE(overlap(report, pass, other)) << pass << ", " << other;
    }
  }
}

TEST(SideBySide, TransitionsBetweenColocatedAndSeparatePlansChangeNothing) {
  const LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/6);
  const std::vector<Plan> plans = {uniform_plan(options, {1, 1}, 4), three_groups(),
                                   // Actor and generation beside critic and reference.
                                   plan_of({{kActorGeneration, {{1, 1}, 0, 2}},
                                            {kActorTraining, {{1, 2}, 0, 1}},
                                            {kCriticTraining, {{2, 1}, 2, 1}},
                                            {kReferenceInference, {{1, 1}, 2, 2}}}),
                                   // Partly overlapping groups.
                                   plan_of({{kActorGeneration, {{1, 1}, 0, 4}},
                                            {kActorTraining, {{2, 1}, 1, 1}},
                                            {kCriticTraining, {{2, 1}, 2, 1}},
                                            {kReferenceInference, {{1, 1}, 0, 2}}}),
                                   three_groups(), uniform_plan(options, {2, 1}, 2)};
  testing::expect_transitions_change_nothing(
      options, plans, {"actor/pg_loss", "critic/vf_loss", "actor/grad_norm"});
}

// One of two updates at once is told to stop when the other has changed weights: both are done.
TEST(SideBySide, AStopWhileModelsAreUpdatedFinishesTheStep) {
  const LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/1);
  LiveJob undisturbed(options, three_groups());
  const StepReport whole = undisturbed.run_step();
  const Seconds updates = span_of(whole, "update_actor").end - span_of(whole, "adv").end;
  int finished = 0, given_up = 0;
  for (int part = 0; part < 12; ++part) {
    std::atomic<bool> stop = false, learning = false;
    LiveOptions watched = options;
    watched.stop = StopToken(stop);
    watched.on_experience = [&](const Experience&) { learning = true; };
    LiveJob stopped(watched, three_groups());
    const auto before = stopped.state_hashes();
    const std::jthread stopper([&] {
      while (!learning) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::duration<double>(updates.count() * part / 12));
      stop = true;
    });
    const StepReport report = stopped.run_step();
    EXPECT_TRUE(stopped.intact());
    EXPECT_EQ(stopped.state_hashes(), report.abandoned ? before : undisturbed.state_hashes());
    ++(report.abandoned ? given_up : finished);
  }
  EXPECT_GT(finished, 0);
  EXPECT_GT(given_up, 0);
  std::printf("%d steps were finished, %d given up\n", finished, given_up);
}

}  // namespace
}  // namespace nereus
