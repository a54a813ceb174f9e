#include "nereus/core/job/job.h"

#include <gtest/gtest.h>

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

TEST(NodeTiming, NamesItsOperationClasses) {
  const NodeTiming timing{"gen", Seconds(2), {{OpClass::kDecode, Seconds(1.5)}}};
  EXPECT_EQ(
      Json(timing),
      parse_json(R"({"name": "gen", "total_s": 2.0, "by_class_s": {"decode": 1.5}})", "expected"));
}

}  // namespace
}  // namespace nereus
