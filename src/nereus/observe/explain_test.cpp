#include "nereus/observe/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/observe/progress.h"
#include "nereus/observe/tables.h"

#include <sstream>

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Json decision(int step, const std::string& verdict) {
  return {{"type", "decision"},
          {"step", step},
          {"trigger", "drift"},
          {"trigger_detail", "response length 32 → 46"},
          {"urgent", false},
          {"signals", {{"response_length", 46.0}}},
          {"current_step_s", 2.0},
          {"best_step_s", 1.5},
          {"best", Plan{}},
          {"transition_s", 0.5},
          {"gain_s", 0.5},
          {"horizon", 8.0},
          {"gamma", 0.5},
          {"verdict", verdict},
          {"reason", "it pays back"}};
}

TEST(Explain, ShowsTheInequalityWithItsNumbers) {
  EXPECT_THAT(render_explain({decision(7, "admitted")}),
              AllOf(HasSubstr("After 8 steps: drift"), HasSubstr("response length 32 → 46"),
                    HasSubstr("≤ γ 0.5 · H 8 · gain"), HasSubstr("= 2.00 s"),
                    HasSubstr("admitted: it pays back")));
  Json rejected = decision(7, "rejected");
  rejected["horizon"] = 1.0;
  EXPECT_THAT(render_explain({rejected}), HasSubstr("> γ 0.5 · H 1 · gain"));
}

TEST(Explain, ShowsPredictedAndMeasuredOfEachPrimitive) {
  const Json event = {{"type", "transition"},
                      {"step", 7},
                      {"predicted_s", 0.5},
                      {"measured_s", 0.4},
                      {"moved_bytes", 2048},
                      {"verified", true},
                      {"primitives",
                       {{{"id", 0},
                         {"text", "split actor/training"},
                         {"bytes_moved", 2048},
                         {"predicted_s", 0.5},
                         {"measured_s", 0.4}}}}};
  EXPECT_THAT(render_explain({event}),
              AllOf(HasSubstr("split actor/training"), HasSubstr("verified bit-equal")));
}

TEST(Explain, OneStepOnly) {
  const std::vector<Json> events = {decision(3, "kept"), decision(7, "admitted")};
  EXPECT_THAT(render_explain(events, 4), AllOf(HasSubstr("4 steps"), Not(HasSubstr("8 steps"))));
  EXPECT_THAT(render_explain(events, 3), HasSubstr("Nothing asked for another plan there"));
}

TEST(Tables, PadByCharactersNotBytes) {
  EXPECT_EQ(render_table({{"a", "b"}, {"tp1·pp1", "x"}}), "a        b\ntp1·pp1  x\n");
}

TEST(Progress, PlainLinesAwayFromATerminal) {
  std::ostringstream out;
  ProgressLine progress(out, 10, false);
  StepReport report;
  report.step = 4;
  report.step_s = Seconds(2);
  report.response_tokens = 100;
  report.metrics = {{"critic/score/mean", 0.5}};
  progress.step(report, Plan{});
  EXPECT_THAT(out.str(), AllOf(HasSubstr("step 5/10  reward 0.500  KL -"), HasSubstr("50 tok/s"),
                               HasSubstr("ETA 0m10s"), Not(HasSubstr("\r"))));
}

TEST(Progress, MessagesScrollAboveTheLiveLine) {
  std::ostringstream out;
  ProgressLine progress(out, 10, true);
  StepReport report;
  report.step_s = Seconds(1);
  progress.step(report, Plan{});
  progress.message("replanned");
  EXPECT_THAT(out.str(), HasSubstr("replanned\nstep 1/10"));
}

}  // namespace
}  // namespace nereus
