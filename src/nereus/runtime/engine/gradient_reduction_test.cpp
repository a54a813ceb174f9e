#include "nereus/runtime/engine/gradient_reduction.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace nereus {
namespace {

std::vector<GradientArena> arenas(double first, int64_t awaited) {
  std::vector<GradientArena> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back({.sums = at::full({2}, first * (i + 1)), .early = i != 1, .awaited = awaited});
  }
  return all;
}

// One replica has gradients that come in backward's order, the other one has no micro-batch.
TEST(GradientReduction, ReplicasNeedNotHaveTheSameMicroBatches) {
  auto communicators = make_thread_communicators(2);
  const std::vector<GradientArena> busy = arenas(1, 2), idle = arenas(10, 0);
  StreamTimer idle_timer, busy_timer;
  std::thread other([&] { GradientReduction(idle, *communicators[1], idle_timer).finish(); });
  GradientReduction reduction(busy, *communicators[0], busy_timer);
  for (const size_t arena : {3, 2, 3, 1, 2, 1, 0, 0}) {
    EXPECT_EQ(busy[arena].sums[0].item<double>(), static_cast<double>(arena + 1))
        << "reduced before its gradients are there";
    reduction.arrived(arena);
  }
  EXPECT_EQ(busy[0].sums[0].item<double>(), 11) << "reduced as soon as it was complete";
  EXPECT_EQ(busy[1].sums[0].item<double>(), 2) << "not early";
  reduction.finish();
  other.join();
  EXPECT_GT(busy_timer.take(), Seconds());
  for (size_t i = 0; i < busy.size(); ++i) {
    EXPECT_EQ(busy[i].sums[0].item<double>(), 11 * static_cast<double>(i + 1));
    EXPECT_TRUE(at::equal(busy[i].sums, idle[i].sums));
  }
}

}  // namespace
}  // namespace nereus
