#include "nereus/runtime/cuda/graph.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "nereus/runtime/cuda/device.h"

namespace nereus {
namespace {

class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
    const c10::impl::VirtualGuardImpl gpu(at::kCUDA);
    before_ = gpu.exchangeStream(gpu.getStreamFromGlobalPool(c10::Device(at::kCUDA, 0)));
    number_ = at::zeros({4}, at::device(c10::Device(at::kCUDA, 0)));
    number_.add_(0);
  }
  void TearDown() override {
    if (before_) c10::impl::VirtualGuardImpl(at::kCUDA).exchangeStream(*before_);
  }

  std::optional<c10::Stream> before_;
  at::Tensor number_;
};

TEST_F(GraphTest, ReplaysWhatWasRecorded) {
  cuda::Graph graph;
  graph.record([&] { number_.add_(1); });
  EXPECT_EQ(number_.cpu()[0].item<float>(), 0) << "recorded, not done";
  for (int i = 0; i < 3; ++i) graph.replay();
  EXPECT_EQ(number_.cpu()[0].item<float>(), 3);
}

// As when memory runs out in the midst of it.
TEST_F(GraphTest, AFailedRecordingLeavesNothingBehind) {
  cuda::Graph graph;
  const auto fails = [&] {
    number_.add_(1);
    throw std::runtime_error("no memory");
  };
  EXPECT_THROW(graph.record(fails), std::runtime_error);
  EXPECT_FALSE(cuda::is_capturing());
  EXPECT_FALSE(graph.recorded());
  number_.add_(5);
  EXPECT_EQ(number_.cpu()[0].item<float>(), 5);
  graph.record([&] { number_.add_(1); });
  graph.replay();
  EXPECT_EQ(number_.cpu()[0].item<float>(), 6);
}

TEST_F(GraphTest, RecordsInTheSameMemoryAgain) {
  cuda::Graph graph;
  const auto reserved = [] {
    const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
    return stats.reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
        .current;
  };
  std::vector<int64_t> after;
  for (int i = 0; i < 4; ++i) {
    graph.record([&] { number_.add_(at::ones({64 << 20}, number_.options())[0]); });
    graph.replay();
    EXPECT_EQ(number_.cpu()[0].item<float>(), i + 1);
    graph.clear();
    after.push_back(reserved());
  }
  EXPECT_EQ(after.back(), after.front());
}

}  // namespace
}  // namespace nereus
