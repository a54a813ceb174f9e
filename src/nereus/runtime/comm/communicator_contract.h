// The tests that every Communicator has to pass. An implementation's own test file names it with
// INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorContract, Combine(Values(kind), Values(1, 2, 3,
// 4))).
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "nereus/runtime/comm/communicator.h"

namespace nereus {

struct CommunicatorKind {
  std::vector<std::unique_ptr<Communicator>> (*make)(int size) = nullptr;
  at::DeviceType device = at::kCPU;  // rank i's tensors are on device i of this type
};

class CommunicatorContract : public testing::TestWithParam<std::tuple<CommunicatorKind, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }

  // Operations return before they are done.
  bool enqueues() const { return std::get<0>(GetParam()).device != at::kCPU; }

  // A copy where a rank's tensors are.
  at::Tensor on(int rank, const at::Tensor& tensor) const {
    const at::DeviceType type = std::get<0>(GetParam()).device;
    return tensor.to(at::Device(type, static_cast<at::DeviceIndex>(type == at::kCPU ? -1 : rank)));
  }

  // Runs work(communicator) on one thread per rank of a new group; rethrows the first error.
  void on_all_ranks(const std::function<void(Communicator&)>& work) const {
    const auto handles = std::get<0>(GetParam()).make(size());
    std::vector<std::exception_ptr> errors(size());
    std::vector<std::thread> threads;
    threads.reserve(size());
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(*handles[rank]);
        } catch (...) {
          errors[rank] = std::current_exception();
          handles[rank]->abort("a test rank failed");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }
};

}  // namespace nereus
