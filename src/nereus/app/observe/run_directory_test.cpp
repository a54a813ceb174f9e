#include "nereus/app/observe/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "nereus/app/observe/records.h"
#include "nereus/app/observe/summary.h"
#include "nereus/runtime/files/files.h"

namespace nereus {
namespace {

namespace fs = std::filesystem;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }

  static StepReport report(int step) {
    StepReport report;
    report.step = step;
    report.step_s = Seconds(0.5);
    report.spans = {{.name = "gen",
                     .end = Seconds(0.25),
                     .devices = {{0, 0}, {0, 1}},
                     .by_class = {{OpClass::kDecode, Seconds(0.25)}}}};
    report.response_tokens = 100;
    report.peak_bytes[{0, 1}] = Bytes(1024);
    report.metrics = {{"critic/score/mean", 0.1 * step}, {"actor/ref_kl", 0.01}};
    return report;
  }

  fs::path root_ = fs::path(testing::TempDir()) / "nereus_run_directory_test";
};

TEST_F(RunDirectoryTest, WritesALineAStepAndAValidTrace) {
  RunDirectory run(root_, 0, true);
  run.write_step(report(0));
  run.write_step(report(1));
  const auto lines = read_records(root_ / "metrics.jsonl", RecordKind::kMetrics).lines;
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[1].at("step"), 1);
  EXPECT_EQ(lines[1].at("critic/score/mean"), 0.1);
  EXPECT_EQ(lines[1].at("peak_bytes").at("0:1"), 1024);
  const Json trace = Json::parse(read_text(root_ / "trace.json"));
  // Names of three rows and of two devices, then each step and its pass on both devices.
  EXPECT_EQ(trace.size(), 3 + 2 + 2 * 3);
  EXPECT_TRUE(fs::exists(root_ / "tb"));
}

TEST_F(RunDirectoryTest, ResumingForgetsTheStepsThatAreDoneAgain) {
  {
    RunDirectory run(root_, 0, false);
    for (int step = 0; step < 4; ++step) run.write_step(report(step));
    run.write_event("fault", 3, {{"message", "lost"}});
  }
  std::ofstream(root_ / "metrics.jsonl", std::ios::app) << "{\"step\": 4, \"cut o";
  RunDirectory run(root_, 2, false);
  EXPECT_EQ(read_records(root_ / "metrics.jsonl", RecordKind::kMetrics).lines.size(), 2);
  EXPECT_TRUE(read_records(root_ / "events.jsonl", RecordKind::kEvents).lines.empty());
  run.write_step(report(2));
  EXPECT_EQ(read_records(root_ / "metrics.jsonl", RecordKind::kMetrics).lines.back().at("step"), 2);
  EXPECT_FALSE(fs::exists(root_ / "tb"));
  EXPECT_NO_THROW(Json::parse(read_text(root_ / "trace.json")));
}

TEST_F(RunDirectoryTest, KeepsWhatValidationsSaid) {
  RunDirectory run(root_, 0, true);
  run.write_validation(0, {{"val-core/a/reward/mean@1", 0.25}});
  StepReport validated = report(0);
  validated.metrics["timing_s/testing"] = 2;
  run.write_step(validated);
  const Json event = read_records(root_ / "events.jsonl", RecordKind::kEvents).lines.front();
  EXPECT_EQ(event.at("type"), "validation");
  EXPECT_EQ(event.at("metrics").at("val-core/a/reward/mean@1"), 0.25);
  const Json trace = Json::parse(read_text(root_ / "trace.json"));
  const Json& testing = trace[3];
  const Json& step = trace[4];
  EXPECT_EQ(testing.at("name"), "testing");
  EXPECT_NEAR(testing.at("ts").get<double>(),
              step.at("ts").get<double>() + step.at("dur").get<double>(), 1);
}

TEST_F(RunDirectoryTest, AFailedTransitionLeadsNowhere) {
  RunDirectory run(root_, 0, false);
  TransitionReport failed;
  failed.failure = TransitionFailure{"0:1 died", {}};
  run.write_transition(3, {}, {}, failed);
  const Json event = read_records(root_ / "events.jsonl", RecordKind::kEvents).lines.back();
  EXPECT_EQ(event.at("failure"), "0:1 died");
  EXPECT_TRUE(event.at("to").is_null());
  EXPECT_TRUE(run.write_summary().at("transitions").empty());
  run.write_transition(4, {}, {}, {});
  EXPECT_EQ(run.write_summary().at("transitions").size(), 1);
}

TEST_F(RunDirectoryTest, NobodysFilesAreTakenForARun) {
  EXPECT_NO_THROW(verify_run_root(root_)) << "nothing there";
  fs::create_directories(root_);
  write_text(root_ / "lock", "7");
  EXPECT_NO_THROW(verify_run_root(root_)) << "of a run that did not begin";
  write_text(root_ / "config.yaml", "mine: 1");
  EXPECT_THROW(verify_run_root(root_), Error) << "anybody's";
  EXPECT_FALSE(holds_run(root_));
  EXPECT_THROW(verify_run_root(root_ / "config.yaml"), Error) << "a file";
  for (const char* name : {"events.jsonl", "metrics.jsonl"}) {
    write_text(root_ / name, "{}\n");
    EXPECT_THROW(verify_run_root(root_), Error) << "not all that a run has";
  }
  fs::create_directories(root_ / "plans");
  EXPECT_NO_THROW(verify_run_root(root_));
  EXPECT_TRUE(holds_run(root_));
}

TEST_F(RunDirectoryTest, ARunCutOffWhileItBeganIsInNobodysWay) {
  fs::create_directories(root_);
  write_text(root_ / "lock", "7");
  {
    const RunDirectory run(root_, 0, true);
  }
  EXPECT_NO_THROW(verify_run_root(root_));
  EXPECT_FALSE(holds_run(root_));
  RunDirectory run(root_, 0, true);
  run.write_config("a: 1");
  EXPECT_TRUE(holds_run(root_));
}

TEST_F(RunDirectoryTest, APlaceWhereNothingCanBeIsSaidPlainly) {
  fs::create_directories(root_);
  EXPECT_THROW(verify_run_root(""), Error);
  EXPECT_THROW(verify_run_root(root_ / std::string(300, 'x')), Error);
  EXPECT_THROW(verify_run_root("/dev/null/run"), Error);
  fs::create_symlink(root_ / "gone", root_ / "link");
  EXPECT_THROW(verify_run_root(root_ / "link"), Error);
  fs::create_symlink("loop", root_ / "loop");
  EXPECT_THROW(verify_run_root(root_ / "loop"), Error);
}

TEST_F(RunDirectoryTest, MovesAnEarlierRunAsideButNotItsLock) {
  for (const char* name : {"lock", "config.yaml", "plans/000.json"}) write_text(root_ / name, name);
  fs::create_directories(root_.string() + ".1");
  const fs::path aside = move_contents_aside(root_);
  EXPECT_EQ(aside, root_.string() + ".2");
  EXPECT_EQ(read_text(root_ / "lock"), "lock");
  EXPECT_FALSE(fs::exists(root_ / "config.yaml"));
  EXPECT_EQ(read_text(aside / "config.yaml"), "config.yaml");
  EXPECT_EQ(read_text(aside / "plans/000.json"), "plans/000.json");
  EXPECT_FALSE(fs::exists(aside / "lock"));
  fs::remove_all(aside);
  fs::remove_all(root_.string() + ".1");
}

TEST(Summary, MeansOfTheFirstAndLastTenSteps) {
  std::vector<Json> metrics;
  for (int step = 0; step < 25; ++step) {
    metrics.push_back({{"step", step},
                       {"critic/score/mean", step},
                       {"response_tokens", 10},
                       {"wall_s", 2.0 * (step + 1)}});
  }
  const std::vector<Json> events = {{{"type", "decision"}, {"verdict", "none"}},
                                    {{"type", "decision"}, {"verdict", "rejected"}},
                                    {{"type", "decision"}, {"verdict", "admitted"}},
                                    {{"type", "transition"},
                                     {"step", 3},
                                     {"from", 1},
                                     {"to", 2},
                                     {"primitives", Json::array()},
                                     {"predicted_s", 0.1},
                                     {"measured_s", 0.2},
                                     {"exposed_s", 0.2},
                                     {"moved_bytes", 5},
                                     {"verified", true}}};
  const Json summary = summarize(metrics, events);
  EXPECT_EQ(summary.at("steps"), 25);
  EXPECT_EQ(summary.at("reward_first"), 4.5);
  EXPECT_EQ(summary.at("reward_last"), 19.5);
  EXPECT_EQ(summary.at("response_tokens"), 250);
  EXPECT_EQ(summary.at("throughput_tok_s"), 5.0);
  EXPECT_EQ(summary.at("replans"), 2);
  EXPECT_EQ(summary.at("rejected"), 1);
  EXPECT_EQ(summary.at("transitions").size(), 1);
  EXPECT_TRUE(summary.at("kl").is_null());
}

TEST(Summary, EachForecastIsJudgedByTheStepAfterIt) {
  const auto decision = [](int step, double expected) {
    return Json{
        {"type", "decision"},
        {"step", step},
        {"next",
         {{"step_s", expected}, {"step_s_low", 0.5 * expected}, {"step_s_high", 1.5 * expected}}}};
  };
  std::vector<Json> metrics;
  for (int step = 0; step < 4; ++step) {
    metrics.push_back({{"step", step}, {"timing_s/step", 1.0 + step}});
  }
  // Steps 1 and 2 take 2 and 3 seconds; step 3 was not predicted, and there is no step 4.
  const std::vector<Json> events = {decision(0, 1.8),
                                    decision(1, 1.5),
                                    {{"type", "decision"}, {"step", 2}, {"next", nullptr}},
                                    decision(3, 1)};
  const Json forecasts = summarize(metrics, events).at("forecasts");
  EXPECT_EQ(forecasts.at("steps"), 2);
  EXPECT_NEAR(forecasts.at("median_error"), 0.5, 1e-9);
  EXPECT_EQ(forecasts.at("held"), 0.5);
}

TEST(Summary, OfNothingIsStillASummary) {
  EXPECT_EQ(summarize({}, {}).at("steps"), 0);
  EXPECT_TRUE(summarize({}, {}).at("reward_first").is_null());
}

}  // namespace
}  // namespace nereus
