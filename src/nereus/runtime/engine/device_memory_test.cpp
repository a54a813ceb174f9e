#include "nereus/runtime/engine/device_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include <thread>

#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/device.h"

namespace nereus {
namespace {

TEST(DeviceMemory, ChargesTensorsOfItsThreadAndGivesThemBack) {
  const DeviceMemory memory("0:0", Bytes(1 << 20));
  const at::Tensor outside = at::empty({1000});
  {
    const DeviceMemory::Scope scope(memory);
    at::Tensor inside = at::empty({1000});
    EXPECT_EQ(memory.current(), Bytes(4000));
    at::Tensor other = at::empty({500});
    other.reset();
    EXPECT_EQ(memory.current(), Bytes(4000));
    EXPECT_EQ(memory.peak(), Bytes(6000));
  }
  EXPECT_EQ(memory.current(), Bytes(0));
}

TEST(DeviceMemory, RefusesWhatExceedsTheBudgetAndStaysUsable) {
  const DeviceMemory memory("0:3", Bytes(10000));
  const DeviceMemory::Scope scope(memory);
  const at::Tensor kept = at::empty({2000});
  try {
    at::empty({600});
    FAIL() << "10400 bytes fitted into 10000";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("0:3"), std::string::npos) << error.what();
  }
  EXPECT_EQ(memory.current(), Bytes(8000));
  EXPECT_NO_THROW(at::empty({500}));
}

TEST(DeviceMemory, FreesOnAnotherThreadAndAfterTheDevice) {
  at::Tensor survivor;
  {
    const DeviceMemory memory("0:1", Bytes(0));
    std::thread([&] {
      const DeviceMemory::Scope scope(memory);
      survivor = at::ones({256});
    }).join();
    EXPECT_EQ(memory.current(), Bytes(1024));
  }
  EXPECT_EQ(survivor.sum().item<float>(), 256.0F);
}

TEST(DeviceMemory, ReservesWhatIsLackingInOnePiece) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const c10::Device gpu(at::kCUDA, 0);
  const DeviceMemory memory("0:0", Bytes(), gpu);
  auto* allocator = c10::getDeviceAllocator(at::kCUDA);
  allocator->emptyCache();
  const auto pieces = [&] { return allocator->getDeviceStats(0).num_device_alloc; };
  const int64_t before = pieces();
  memory.reserve(Bytes(int64_t{6} << 30));
  EXPECT_EQ(pieces() - before, 1);
  EXPECT_EQ(memory.current(), Bytes());
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 23; ++i) {
    tensors.push_back(at::empty({int64_t{256} << 20}, at::device(gpu).dtype(at::kByte)));
  }
  EXPECT_EQ(pieces() - before, 1) << "all of it from what was reserved";
  memory.reserve(Bytes(int64_t{256} << 20));
  EXPECT_EQ(pieces() - before, 1) << "there is one left";
  memory.reserve(Bytes(int64_t{1} << 30));
  EXPECT_EQ(pieces() - before, 2);
}

}  // namespace
}  // namespace nereus
