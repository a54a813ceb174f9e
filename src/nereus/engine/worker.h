// One thread per device, and running the same function on many of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "nereus/cluster/device.h"
#include "nereus/engine/device_memory.h"

namespace nereus {

// Executes tasks in order on its own thread, with one intra-op thread, charging allocations to the
// device's memory. `compute` is where its tensors live: cpu, or cuda:index.
class Worker final {
 public:
  Worker(DeviceId id, at::Device compute, Bytes memory_budget);
  ~Worker();  // finishes queued tasks
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  DeviceId id() const { return id_; }
  at::Device compute() const { return compute_; }
  DeviceMemory& memory() { return memory_; }
  // Any thread. The task must not throw.
  void post(std::function<void()> task);

 private:
  void loop();

  DeviceId id_;
  at::Device compute_;
  DeviceMemory memory_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

class WorkerPool final {
 public:
  // `device_type` "cpu" or "cuda" (index i of a host computes on cuda:i).
  WorkerPool(const DevicePool& devices, const std::string& device_type, Bytes memory_budget);

  Worker& at(DeviceId id) const;

  // Runs body(worker) on each device at once and waits for all. If one throws, `on_failure(reason)`
  // is called once, at once (it should abort communicators so that nobody waits for the failed
  // one), and the first error that is not a consequence (kAborted) is thrown when all have ended.
  void run(std::span<const DeviceId> devices, const std::function<void(Worker&)>& body,
           const std::function<void(const std::string&)>& on_failure) const;

 private:
  std::map<DeviceId, std::unique_ptr<Worker>> workers_;
};

}  // namespace nereus
