#include "nereus/runtime/live/metrics.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

TEST(PerformanceMetrics, AreOfTheDevicesThatHeldAnything) {
  StepReport report;
  report.step = 6;
  report.step_s = Seconds(4);
  report.prompt_tokens = 100;
  report.response_tokens = 300;
  report.spans = {{.name = "gen", .start = Seconds(0.5), .end = Seconds(3.5), .tokens = 300},
                  {.name = "update_actor", .end = Seconds(1)},
                  {.name = "update_critic", .idle = true}};
  report.peak_bytes = {
      {{0, 0}, Bytes(int64_t{1} << 30)}, {{0, 1}, Bytes(int64_t{3} << 29)}, {{0, 2}, Bytes()}};
  Metrics metrics;
  add_performance_metrics(report, metrics);
  EXPECT_DOUBLE_EQ(metrics.at("perf/max_memory_allocated_gb"), 1.5);
  EXPECT_DOUBLE_EQ(metrics.at("perf/throughput"), 400.0 / 4 / 2);
  EXPECT_DOUBLE_EQ(metrics.at("perf/total_num_tokens"), 400);
  EXPECT_DOUBLE_EQ(metrics.at("perf/time_per_step"), 4);
  EXPECT_DOUBLE_EQ(metrics.at("timing_s/step"), 4);
  // Of generation by the tokens that it wrote, of other passes by those that they read.
  EXPECT_DOUBLE_EQ(metrics.at("timing_per_token_ms/gen"), 10);
  EXPECT_DOUBLE_EQ(metrics.at("timing_per_token_ms/update_actor"), 2.5);
  EXPECT_DOUBLE_EQ(metrics.at("training/global_step"), 7);
  EXPECT_FALSE(metrics.contains("timing_s/update_critic")) << "it was left out";
}

}  // namespace
}  // namespace nereus
