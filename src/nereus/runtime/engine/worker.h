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

#include "nereus/core/cluster/backend.h"
#include "nereus/core/cluster/cluster.h"
#include "nereus/runtime/engine/device_memory.h"

namespace nereus {

// Executes tasks in order on its own thread, with one intra-op thread, charging allocations to the
// device's memory.
class Worker final {
 public:
  // `where`: what its tensors are made with (cpu, cuda:index, pinned). Workers given copies of one
  // DeviceMemory share its budget.
  Worker(DeviceId id, at::TensorOptions where, DeviceMemory memory);
  ~Worker();  // finishes queued tasks
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  DeviceId id() const { return id_; }
  at::TensorOptions where() const { return where_; }
  DeviceMemory& memory() { return memory_; }
  // Waits until what this thread has asked of an accelerator is done; nothing to do on the CPU.
  void synchronise() const;
  // Any thread. The task must not throw.
  void post(std::function<void()> task);

 private:
  void loop();

  DeviceId id_;
  at::TensorOptions where_;
  DeviceMemory memory_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

class WorkerPool final {
 public:
  // One worker for each device of the cluster, and one for each host's memory that state may be
  // parked in. Budgets are the cluster's.
  WorkerPool(const Cluster& cluster, const Backend& backend);

  // A second thread for each device, with the same memory accounts: work beside the passes that
  // keep the first ones busy.
  WorkerPool beside() const;

  Worker& at(DeviceId id) const;
  std::vector<DeviceId> devices() const;  // sorted, host memory included

  // Runs body(worker) on each device at once and waits for all. If one throws, `on_failure(reason)`
  // is called once, at once (it should abort communicators so that nobody waits for the failed
  // one), and the first error that is not a consequence (kAborted) is thrown when all have ended.
  void run(std::span<const DeviceId> devices, const std::function<void(Worker&)>& body,
           const std::function<void(const std::string&)>& on_failure) const;

 private:
  WorkerPool() = default;
  std::map<DeviceId, std::unique_ptr<Worker>> workers_;
};

}  // namespace nereus
