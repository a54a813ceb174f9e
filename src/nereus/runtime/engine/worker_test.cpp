#include "nereus/runtime/engine/worker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "nereus/core/base/error.h"
#include "nereus/runtime/comm/communicator.h"

namespace nereus {
namespace {

const std::vector<DeviceId> kDevices = {{0, 0}, {0, 1}, {0, 2}};
void ignore(const std::string&) {}

TEST(WorkerPool, RunsOnEveryDeviceAtOnce) {
  const WorkerPool pool(cpu_cluster(3, Bytes(0), 1), Backend{});
  auto comms = make_thread_communicators(3);
  std::atomic<int> ran = 0;
  // A barrier passes only if all three run at the same time.
  pool.run(
      kDevices,
      [&](Worker& worker) {
        comms[worker.id().index]->barrier();
        ++ran;
      },
      ignore);
  EXPECT_EQ(ran, 3);
}

TEST(WorkerPool, ThrowsTheCauseAndNotItsConsequences) {
  const WorkerPool pool(cpu_cluster(3, Bytes(0), 1), Backend{});
  auto comms = make_thread_communicators(3);
  const auto body = [&](Worker& worker) {
    if (worker.id().index == 1) throw Error(ErrorCode::kNumeric, "NaN on device 1");
    comms[worker.id().index]->barrier();
  };
  try {
    pool.run(kDevices, body, [&](const std::string& reason) { comms[0]->abort(reason); });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumeric);
    EXPECT_STREQ(error.what(), "NaN on device 1");
  }
  std::atomic<int> ran = 0;
  pool.run(kDevices, [&](Worker&) { ++ran; }, ignore);
  EXPECT_EQ(ran, 3) << "workers survive a failed run";
}

TEST(WorkerPool, EnforcesTheBudgetOfEachDevice) {
  const WorkerPool pool(cpu_cluster(3, Bytes(1000), 1), Backend{});
  const auto body = [](Worker& worker) { at::empty({worker.id().index == 2 ? 300 : 100}); };
  EXPECT_THROW(pool.run(kDevices, body, ignore), Error);
  EXPECT_EQ(pool.at({0, 0}).memory().peak(), Bytes(400));
}

TEST(WorkerPool, GivesHostMemoryItsOwnBudget) {
  const WorkerPool pool(cpu_cluster(3, Bytes(1000), 1), Backend{});
  const DeviceId host{0, kHostMemory};
  EXPECT_EQ(pool.devices().front(), host);
  at::Tensor parked;
  const std::vector<DeviceId> devices = {host};
  pool.run(devices, [&](Worker& worker) { parked = at::empty({500}, worker.where()); }, ignore);
  EXPECT_EQ(pool.at(host).memory().current(), Bytes(2000));
}

TEST(WorkerPool, WorksBesideABusyPoolOnTheSameBudget) {
  const WorkerPool pool(cpu_cluster(3, Bytes(1000), 1), Backend{});
  const WorkerPool second = pool.beside();
  std::promise<void> finished;
  at::Tensor tensor;
  pool.at({0, 1}).post([&] { finished.get_future().wait(); });
  const std::vector<DeviceId> devices = {{0, 1}};
  second.run(devices, [&](Worker&) { tensor = at::empty({100}); }, ignore);
  EXPECT_EQ(pool.at({0, 1}).memory().current(), Bytes(400));
  const auto too_much = [](Worker&) { at::empty({200}); };
  EXPECT_THROW(second.run(devices, too_much, ignore), Error) << "400 of 1000 bytes are taken";
  finished.set_value();
}

}  // namespace
}  // namespace nereus
