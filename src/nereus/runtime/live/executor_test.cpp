#include "nereus/runtime/live/executor.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "nereus/core/base/stop_token.h"

namespace nereus {
namespace {

constexpr NodeId kFirst{0}, kLeft{1}, kRight{2}, kLast{3};
using Devices = std::vector<std::vector<DeviceId>>;

// first → {left, right} → last
Workflow diamond() {
  Workflow workflow;
  workflow.nodes = {{"first"}, {"left"}, {"right"}, {"last"}};
  workflow.edges = {{kFirst, kLeft}, {kFirst, kRight}, {kLeft, kLast}, {kRight, kLast}};
  return workflow;
}

const DeviceId kA{0, 0}, kB{0, 1};

// A place where two nodes meet, if they run at once.
class Meeting final {
 public:
  // Waits for the other one, but not forever. False if it did not come.
  bool arrive() {
    ++arrived_;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (arrived_ < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return arrived_ >= 2;
  }

 private:
  std::atomic<int> arrived_ = 0;
};

TEST(Executor, NodesWithoutADeviceInCommonRunAtOnce) {
  const Workflow workflow = diamond();
  for (const Devices& busy : {Devices{{kA, kB}, {kA}, {kB}, {kA}}, Devices{{kA}, {kA}, {}, {}}}) {
    Executor executor(workflow, busy, Stopwatch());
    Meeting both;
    executor.run([&](NodeId node) -> PassResult {
      if (node == kLeft || node == kRight) {
        EXPECT_TRUE(both.arrive()) << "one waits for the other";
      }
      return {.metrics = {{workflow.at(node).name, 1}}};
    });
    const std::vector<Span> spans = executor.spans(/*step=*/5);
    verify_spans(spans, workflow);
    EXPECT_LT(spans[1].start, spans[2].end);
    EXPECT_LT(spans[2].start, spans[1].end);
    EXPECT_GE(spans[3].start, std::max(spans[1].end, spans[2].end));
    EXPECT_EQ(spans[3].step, 5);
    EXPECT_EQ(executor.metrics().size(), 4u);
  }
}

TEST(Executor, AnErrorWaitsForWhatRunsAndStartsNothingMore) {
  const Workflow workflow = diamond();
  Executor executor(workflow, Devices{{}, {}, {}, {}}, Stopwatch());
  Meeting both;
  std::atomic<bool> fails = true;
  std::atomic<int> right_runs = 0, last_runs = 0;
  const auto body = [&](NodeId node) -> PassResult {
    if (node == kRight) ++right_runs;
    if (node == kLast) ++last_runs;
    if (fails && (node == kLeft || node == kRight)) {
      EXPECT_TRUE(both.arrive());
    }
    if (fails && node == kLeft) throw Error(ErrorCode::kNumeric, "left broke");
    return {};
  };
  try {
    executor.run(body);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "left broke");
  }
  EXPECT_EQ(right_runs, 1);
  EXPECT_EQ(last_runs, 0);
  EXPECT_EQ(executor.spans(0).size(), 2u) << "first and right have ended";
  fails = false;
  executor.run(body);
  EXPECT_EQ(right_runs, 1) << "it had ended";
  EXPECT_EQ(last_runs, 1);
  verify_spans(executor.spans(0), workflow);
}

TEST(Executor, AFaultCountsMoreThanBeingToldToStop) {
  const Workflow workflow = diamond();
  for (const bool stop_first : {true, false}) {
    Executor executor(workflow, Devices{{}, {}, {}, {}}, Stopwatch());
    Meeting both;
    const auto body = [&](NodeId node) -> PassResult {
      if (node != kLeft && node != kRight) return {};
      EXPECT_TRUE(both.arrive());
      if ((node == kLeft) == stop_first) throw Stopped();
      throw Error(ErrorCode::kNumeric, "broke");
    };
    try {
      executor.run(body);
      FAIL();
    } catch (const Stopped&) {
      FAIL() << "the fault is lost";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNumeric);
    }
  }
}

// Any graph on any devices: each node once, after all that it waits for.
TEST(Executor, EveryNodeRunsOnceAfterWhatItWaitsFor) {
  const bool holds = rc::check([] {
    const int count = *rc::gen::inRange(1, 9);
    Workflow workflow;
    Devices busy;
    for (int to = 0; to < count; ++to) {
      workflow.nodes.push_back({"node " + std::to_string(to)});
      for (int from = 0; from < to; ++from) {
        if (*rc::gen::inRange(0, 3) == 0) {
          workflow.edges.push_back({static_cast<NodeId>(from), static_cast<NodeId>(to)});
        }
      }
      const int devices = *rc::gen::inRange(0, 8);  // as bits
      busy.emplace_back();
      for (int device = 0; device < 3; ++device) {
        if ((devices >> device & 1) != 0) busy.back().push_back({0, device});
      }
    }
    Executor executor(workflow, busy, Stopwatch());
    std::mutex mutex;
    std::set<NodeId> ended;
    std::set<DeviceId> at_work;
    const auto before = waits_for(workflow, busy);
    bool in_order = true;
    executor.run([&](NodeId node) -> PassResult {
      {
        const std::lock_guard lock(mutex);
        for (const NodeId other : before[index(node)]) in_order &= ended.contains(other);
        for (const DeviceId device : busy[index(node)]) in_order &= at_work.insert(device).second;
      }
      std::this_thread::yield();
      const std::lock_guard lock(mutex);
      for (const DeviceId device : busy[index(node)]) at_work.erase(device);
      in_order &= ended.insert(node).second;
      return {};
    });
    RC_ASSERT(in_order);
    RC_ASSERT(ended.size() == workflow.nodes.size());
    verify_spans(executor.spans(0), workflow);
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace nereus
