#include "nereus/app/observe/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/app/observe/progress.h"
#include "nereus/app/observe/tables.h"
#include "nereus/core/base/error.h"
#include "nereus/runtime/files/files.h"

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

std::filesystem::path events_file(const std::string& text) {
  const std::filesystem::path file = testing::TempDir() + "nereus_events.jsonl";
  write_text(file, text);
  return file;
}

std::string refusal(const std::string& text) {
  try {
    read_events(events_file(text));
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kInvalidInput));
    return error.what();
  }
  return "no error";
}

TEST(ReadEvents, LeavesOutOnlyALastLineThatWasCutOff) {
  const std::string whole = decision(3, "kept").dump() + "\n";
  EXPECT_EQ(read_events(events_file(whole)).size(), 1);
  EXPECT_EQ(read_events(events_file(whole + whole.substr(0, 20))).size(), 1);
  EXPECT_EQ(read_events(events_file("")).size(), 0);
  EXPECT_THAT(refusal(whole + "gar\n" + whole),
              AllOf(HasSubstr("nereus_events.jsonl: line 2"), HasSubstr("\"gar\"")));
  EXPECT_THAT(refusal(whole + "{\"step\": 1}\n"), HasSubstr("line 2 is no event"));
  EXPECT_THAT(refusal("garbage"), HasSubstr("nereus_events.jsonl: holds no event"));
}

TEST(Tables, PadByCharactersNotBytes) {
  EXPECT_EQ(render_table({{"a", "b"}, {"tp1·pp1", "x"}}), "a        b\ntp1·pp1  x\n");
}

TEST(Progress, ValidationsAreToldByDataSource) {
  EXPECT_EQ(validation_text({{"critic/score/mean", 1}}), "");
  EXPECT_EQ(validation_text({{"val-aux/response_length/mean", 12},
                             {"val-core/openai/gsm8k/reward/mean@4", 0.3125},
                             {"val-core/unknown/reward/mean@4", -1}}),
            "validation: reward 0.312 of openai/gsm8k, -1.000 of unknown, length 12");
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
