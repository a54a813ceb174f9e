#include "nereus/core/job/job.h"

#include <gtest/gtest.h>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

TEST(TransitionReport, SaysWhatWasMeasuredAndProved) {
  TransitionReport report;
  report.primitives = {{3, Seconds(0.5), Bytes(64), Seconds(0.25), Bytes(16)}};
  report.measured = Seconds(0.75);
  report.verification = Seconds(0.25);
  report.settling = Seconds(0.5);
  report.moved = Bytes(64);
  report.resident = Bytes(16);
  report.verified = true;
  report.peak_bytes = {{{0, 1}, Bytes(100)}};
  EXPECT_EQ(Json(report), parse_json(R"({
    "primitives": [{"id": 3, "start_s": 0.25, "measured_s": 0.5, "moved_bytes": 64,
                    "resident_bytes": 16}],
    "measured_s": 0.75, "verification_s": 0.25, "settling_s": 0.5, "moved_bytes": 64, "resident_bytes": 16,
    "verified": true, "peak_bytes": {"0:1": 100}})",
                                     "expected"));
}

TEST(TransitionReport, SaysWhatFailed) {
  TransitionReport report;
  report.failure = {"device 0:1 was lost", {{0, 1}}};
  EXPECT_EQ(
      Json(report).at("failure"),
      parse_json(R"({"reason": "device 0:1 was lost", "lost_devices": ["0:1"]})", "expected"));
}

Span span_of(int node, const char* name, double start, double end) {
  return {.node = static_cast<NodeId>(node),
          .name = name,
          .start = Seconds(start),
          .end = Seconds(end)};
}

TEST(Span, SaysWhenAndWhereItWasAndItsOperationClasses) {
  Span span = span_of(0, "gen", 0.5, 2.5);
  span.step = 3;
  span.devices = {{0, 1}};
  span.by_class = {{OpClass::kDecode, Seconds(1.5)}};
  EXPECT_EQ(span.took(), Seconds(2));
  EXPECT_EQ(Json(span), parse_json(R"({"step": 3, "name": "gen", "start_s": 0.5, "end_s": 2.5,
                                       "devices": ["0:1"], "by_class_s": {"decode": 1.5}})",
                                   "expected"));
}

TEST(Spans, AreThoseOfTheNodesEachExactlyOnce) {
  Workflow workflow;
  workflow.nodes = {{.name = "gen", .pass = Pass::kGenerate}, {.name = "reward"}};
  const std::vector<Span> spans = {span_of(0, "gen", 0, 1), span_of(1, "reward", 1, 1)};
  EXPECT_NO_THROW(verify_spans(spans, workflow));
  EXPECT_THROW(verify_spans({spans[0]}, workflow), Error);
  EXPECT_THROW(verify_spans({spans[0], spans[0]}, workflow), Error);
  EXPECT_THROW(verify_spans({spans[1], spans[0]}, workflow), Error);
  EXPECT_THROW(verify_spans({spans[0], spans[1], spans[1]}, workflow), Error);
  EXPECT_THROW(verify_spans({spans[0], span_of(1, "reward", 1, 0.5)}, workflow), Error);
}

}  // namespace
}  // namespace nereus
