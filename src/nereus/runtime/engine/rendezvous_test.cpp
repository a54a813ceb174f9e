#include "nereus/runtime/engine/rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

// Two primitives, the second waits for the first; two devices in each.
TransitionDag chain() {
  TransitionDag dag;
  dag.primitives.resize(2);
  dag.edges = {{0, 1}};
  return dag;
}

TEST(Rendezvous, WaitsForPredecessorsOnAllTheirDevices) {
  Rendezvous rendezvous(chain(), {2, 2});
  std::atomic<int> completed = 0;
  std::jthread waiting([&] {
    rendezvous.await_predecessors(1);
    EXPECT_EQ(completed, 2);
  });
  rendezvous.await_predecessors(0);
  for (int device = 0; device < 2; ++device) {
    EXPECT_FALSE(rendezvous.is_complete(0));
    ++completed;
    rendezvous.complete(0);
  }
  EXPECT_TRUE(rendezvous.is_complete(0));
}

TEST(Rendezvous, MeetsChunkByChunk) {
  Rendezvous rendezvous(chain(), {2, 2});
  std::atomic<int> steps[2] = {0, 0};
  const auto work = [&](int me) {
    for (int chunk = 0; chunk < 1000; ++chunk) {
      ++steps[me];
      rendezvous.meet(0);
      ASSERT_GE(steps[1 - me], chunk + 1) << "the other one has not come this far";
    }
  };
  std::jthread first(work, 0);
  std::jthread second(work, 1);
}

TEST(Rendezvous, AbortWakesWhoeverWaits) {
  Rendezvous rendezvous(chain(), {2, 2});
  const auto expect_reason = [](const auto& wait) {
    try {
      wait();
      FAIL() << "it went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAborted);
      EXPECT_STREQ(error.what(), "device 0:1 was lost");
    }
  };
  {
    const auto for_ever = std::chrono::steady_clock::now() + std::chrono::hours(24);
    std::jthread meets([&] { expect_reason([&] { rendezvous.meet(0); }); });
    std::jthread waits([&] { expect_reason([&] { rendezvous.await_predecessors(1); }); });
    std::jthread sleeps([&] { expect_reason([&] { rendezvous.sleep_until(for_ever); }); });
    rendezvous.abort("device 0:1 was lost");
    rendezvous.abort("a consequence");
  }
  expect_reason([&] { rendezvous.check(); });
}

}  // namespace
}  // namespace nereus
