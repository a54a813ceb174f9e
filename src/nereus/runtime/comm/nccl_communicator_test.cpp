#include "nereus/runtime/comm/nccl_communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "nereus/core/base/error.h"
#include "nereus/runtime/comm/communicator_contract.h"
#include "nereus/runtime/cuda/device.h"

namespace nereus {
namespace {

// Ranks that share a GPU are not possible with NCCL.
std::vector<std::unique_ptr<Communicator>> make_nccl(int size) {
  std::vector<int> devices(size);
  std::iota(devices.begin(), devices.end(), 0);
  return make_nccl_communicators(devices);
}

std::vector<int> possible_sizes() {
  std::vector<int> sizes(std::min(cuda::device_count(), 4));
  std::iota(sizes.begin(), sizes.end(), 1);
  return sizes;
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract,
                         testing::Combine(testing::Values(CommunicatorKind{&make_nccl, at::kCUDA}),
                                          testing::ValuesIn(possible_sizes())),
                         [](const auto& info) { return std::to_string(std::get<1>(info.param)); });

TEST(NcclCommunicator, SaysWhatItWaitedForInVain) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto handles = make_nccl_communicators({0, 1}, Seconds(0.5));
  at::Tensor tensor = at::ones({1 << 20}, at::device(at::Device(at::kCUDA, 0)));
  try {
    handles[0]->all_reduce(tensor);  // rank 1 never comes, and the watchdog gives the group up
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_THAT(error.what(), testing::HasSubstr("all-reduce of 4"));
    EXPECT_THAT(error.what(), testing::HasSubstr("1 on cuda:0 0 on cuda:1"));
  }
}

// A rank that waits inside the driver must not keep the other one from launching what it waits for.
TEST(NcclCommunicator, RanksMayWaitForTheirDevicesAtAnyTime) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto handles = make_nccl_communicators({0, 1});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(rank));
      at::Tensor tensor = at::ones({1 << 16}, at::device(device));
      for (int i = 0; i < 300; ++i) {
        at::Tensor copy = tensor.clone();
        handles[rank]->all_reduce(copy);
        if (i % 7 == rank) {
          EXPECT_EQ(copy.cpu()[0].item<float>(), 2);  // to pageable memory
        }
        const at::Tensor again = copy.clone();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nereus
