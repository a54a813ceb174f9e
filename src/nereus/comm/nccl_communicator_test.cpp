#include "nereus/comm/nccl_communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "nereus/base/error.h"
#include "nereus/comm/communicator_contract.h"
#include "nereus/cuda/device.h"

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
  handles[0]->all_reduce(tensor);  // rank 1 never comes
  at::Tensor sum = tensor.sum();
  (void)sum.item<float>();  // ends when the watchdog gives the group up
  try {
    handles[0]->all_reduce(tensor);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_THAT(error.what(), testing::HasSubstr("all-reduce of 4"));
    EXPECT_THAT(error.what(), testing::HasSubstr("1 on cuda:0 0 on cuda:1"));
  }
}

}  // namespace
}  // namespace nereus
