#include "nereus/app/observe/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "nereus/app/observe/explain.h"
#include "nereus/app/observe/run_directory.h"
#include "nereus/app/observe/summary.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/testing.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Lines that no run writes, with the key at fault ("": there is none).
struct BadLine {
  std::string text;
  std::string key;
};
const BadLine kBadMetrics[] = {
    {R"({"step": 1e400})", "step"},
    {R"({"step": "x"})", "step"},
    {R"({"step": 1.5})", "step"},
    {R"({"step": true})", "step"},
    {R"({"step": 1e30})", "step"},
    {R"({"step": -2})", "step"},
    {R"({"step": 9223372036854775807})", "step"},
    {R"({"step": 1, "response_tokens": -1})", "response_tokens"},
    {R"({"step": 1, "response_tokens": 9e18})", "response_tokens"},
    {R"({"step": 1, "wall_s": "12"})", "wall_s"},
    {R"({"step": 1, "timing_s/step": [1]})", "timing_s/step"},
    {R"({"step": 1, "critic/score/mean": {"a": 1}})", "critic/score/mean"},
    {R"({"step": 1, "peak_bytes": {"0:0": "all"}})", "peak_bytes"},
    {R"({"step": 1, "peak_bytes": 3})", "peak_bytes"},
    {R"([{"step": 1}])", ""},
    {R"({"step": 1} {"step": 2})", ""},
    {R"({"step": 1, )", ""},
    {"\x01\xff", ""},
    {"7", ""}};
const BadLine kBadEvents[] = {
    {R"({"type": "decision", "step": 1e400})", "step"},
    {R"({"type": "decision", "step": "1"})", "step"},
    {R"({"type": "decision", "step": 1, "gain_s": "much"})", "gain_s"},
    {R"({"type": "decision", "step": 1, "urgent": 1})", "urgent"},
    {R"({"type": "decision", "step": 1, "signals": [1]})", "signals"},
    {R"({"type": "decision", "step": 1, "best": {"stages": 1}})", "best"},
    {R"({"type": "decision", "step": 1, "best": {"stages": [{"role": "actor"}]}})", "best"},
    {R"({"type": "decision", "step": 1, "next": {"step_s": "x"}})", "step_s"},
    {R"({"type": "transition", "step": 1})", "moved_bytes"},
    {R"({"type": "transition", "step": 1, "moved_bytes": 1.5})", "moved_bytes"},
    {R"({"type": "transition", "step": 1, "moved_bytes": 1, "primitives": [{"id": "x"}]})", "id"},
    {R"({"type": "plan", "step": 1, "text": 7})", "text"},
    {R"({"type": 3, "step": 1})", ""},
    {R"({"step": 1})", ""},
    {R"({"type")", ""}};

std::string deep(const std::string& before) {
  return before + std::string(60'000, '[') + std::string(60'000, ']') + "}";
}

void expect_skipped(const BadLine& bad, RecordKind kind, const std::string& good) {
  const auto file = fresh_directory() / "records.jsonl";
  write_text(file, good + "\n" + bad.text + "\n" + good + "\n");
  const Records records = read_records(file, kind);
  EXPECT_THAT(records.lines, SizeIs(2)) << bad.text;
  EXPECT_THAT(records.problems,
              ElementsAre(AllOf(HasSubstr(file.string()), HasSubstr("line 2"), HasSubstr(bad.key),
                                Not(HasSubstr("json.exception")))))
      << bad.text;
}

TEST(Records, ABadLineIsLeftOutByNameOfFileLineAndKey) {
  const std::string metrics = R"({"step": 0, "wall_s": 1.5, "loss": null})";
  const std::string event = R"({"type": "plan", "step": 0, "text": "a", "file": "b"})";
  for (const BadLine& bad : kBadMetrics) expect_skipped(bad, RecordKind::kMetrics, metrics);
  for (const BadLine& bad : kBadEvents) expect_skipped(bad, RecordKind::kEvents, event);
  expect_skipped({deep(R"({"step": 1, "a": )"), "nested"}, RecordKind::kMetrics, metrics);
  expect_skipped({deep(R"({"type": "plan", "a": )"), "nested"}, RecordKind::kEvents, event);
}

TEST(Records, ARunGoesOnWhateverItsRecordHolds) {
  const auto root = fresh_directory();
  std::string metrics = R"({"step": 0, "response_tokens": 5, "critic/score/mean": 0.5})"
                        "\n";
  for (const BadLine& bad : kBadMetrics) metrics += bad.text + "\n";
  std::string events = R"({"type": "fault", "step": 0, "message": "lost"})"
                       "\n";
  for (const BadLine& bad : kBadEvents) events += bad.text + "\n";
  write_text(root / "metrics.jsonl", metrics);
  write_text(root / "events.jsonl", events);
  RunDirectory record(root, 1, false);
  const Json summary = record.write_summary();
  EXPECT_EQ(summary.at("steps"), 1);
  EXPECT_EQ(summary.at("response_tokens"), 5);
  EXPECT_THAT(summary.at("faults"), SizeIs(1));
  // They are gone: the next start does not speak of them again.
  for (const auto kind : {RecordKind::kMetrics, RecordKind::kEvents}) {
    const char* name = kind == RecordKind::kMetrics ? "metrics.jsonl" : "events.jsonl";
    EXPECT_THAT(read_records(root / name, kind).problems, IsEmpty());
  }
}

TEST(Records, LinesThatAppearWhileARunGoesOnDoNotEndIt) {
  const auto root = fresh_directory();
  RunDirectory record(root, 0, false);
  std::ofstream(root / "metrics.jsonl", std::ios::app) << "{\"step\": \"x\"}\n{\"step\": 3}\n";
  EXPECT_EQ(record.write_summary().at("steps"), 1);
}

TEST(Records, WhatCouldNotBeMeasuredIsNull) {
  const Json decision = {{"type", "decision"},      {"step", 1},          {"trigger", "drift"},
                         {"gain_s", std::nan("")},  {"best", nullptr},    {"horizon", INFINITY},
                         {"transition_s", nullptr}, {"signals", nullptr}, {"next", nullptr},
                         {"verdict", nullptr},      {"reason", nullptr}};
  const auto file = fresh_directory() / "events.jsonl";
  write_text(file, to_line(decision) + "\n");
  EXPECT_THAT(render_explain(read_events(file)), HasSubstr("After 2 steps: drift"));
  const Json metrics = {{"step", 1}, {"critic/score/mean", nullptr}, {"timing_s/step", nullptr}};
  EXPECT_EQ(summarize({metrics}, {decision}).at("steps"), 1);
}

TEST(Records, OnlyRegularFilesAreRead) {
  const auto file = fresh_directory() / "events.jsonl";
  EXPECT_THAT(read_records(file, RecordKind::kEvents).lines, IsEmpty());
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_events(file); }),
              AllOf(HasSubstr(file.string()), HasSubstr("a pipe")));
}

}  // namespace
}  // namespace nereus
