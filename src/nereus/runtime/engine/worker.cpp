#include "nereus/runtime/engine/worker.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <latch>
#include <system_error>

#include "nereus/core/base/error.h"
#include "nereus/core/base/stop_token.h"

namespace nereus {

namespace {

// Two threads of one device do not wait for each other's kernels.
void use_own_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.setDevice(device);
  guard.exchangeStream(guard.getStreamFromGlobalPool(device));
}

std::thread start_thread(DeviceId id, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kInternal, "a thread was wanted for device " + to_string(id) +
                                          " and could not be started: " + error.code().message());
  }
}

}  // namespace

Worker::Worker(DeviceId id, at::TensorOptions where, DeviceMemory memory)
    : id_(id),
      where_(where),
      memory_(std::move(memory)),
      thread_(start_thread(id, [this] { loop(); })) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Worker::synchronise() const {
  if (where_.device().is_cpu()) return;
  const c10::impl::VirtualGuardImpl device(where_.device().type());
  device.synchronizeStream(device.getStream(where_.device()));
}

void Worker::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Worker::loop() {
  at::set_num_threads(1);
  // Backward runs on this thread. Autograd's own one for a GPU would be another device's too where
  // two share the GPU, and a collective of the first would wait there for the second's.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  if (!where_.device().is_cpu()) use_own_stream(where_.device());
  const DeviceMemory::Scope scope(memory_);
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

WorkerPool::WorkerPool(const Cluster& cluster, const Backend& backend) {
  const auto add = [&](DeviceId id, at::TensorOptions where, DeviceMemory memory) {
    workers_.emplace(id, std::make_unique<Worker>(id, where, std::move(memory)));
  };
  const DevicePool devices = all_devices(cluster);
  for (const DeviceId id : devices.devices()) {
    const Bytes budget = cluster.device.memory;
    if (backend.is_cpu()) {
      add(id, at::kCPU, DeviceMemory(to_string(id), budget));
    } else {
      const at::Device gpu(at::kCUDA, static_cast<at::DeviceIndex>(backend.gpu_of(id)));
      add(id, gpu, DeviceMemory(to_string(id), budget, gpu, backend.sharing(id)));
    }
  }
  for (int host = 0; host < static_cast<int>(cluster.hosts.size()); ++host) {
    const Bytes memory = cluster.hosts[host].memory;
    if (memory == Bytes()) continue;
    const DeviceId id{host, kHostMemory};
    add(id, at::TensorOptions(at::kCPU).pinned_memory(!backend.is_cpu()),
        DeviceMemory(to_string(id), memory));
  }
}

WorkerPool WorkerPool::beside() const {
  WorkerPool pool;
  for (const auto& [id, worker] : workers_) {
    pool.workers_.emplace(id, std::make_unique<Worker>(id, worker->where(), worker->memory()));
  }
  return pool;
}

std::vector<DeviceId> WorkerPool::devices() const {
  std::vector<DeviceId> ids;
  for (const auto& [id, worker] : workers_) ids.push_back(id);
  return ids;
}

Worker& WorkerPool::at(DeviceId id) const {
  const auto found = workers_.find(id);
  NEREUS_CHECK(found != workers_.end(), "no worker for device " + to_string(id));
  return *found->second;
}

namespace {

// The first cause of a failed run, among errors that only follow from it.
class FirstError {
 public:
  // True for the first error of all: somebody has to wake the others.
  bool add(std::exception_ptr error, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    const bool first = !error_;
    if (first || (is_consequence_ && !is_consequence)) {
      error_ = std::move(error);
      is_consequence_ = is_consequence;
    }
    return first;
  }
  void rethrow_if_any() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool is_consequence_ = false;
};

// libtorch has errors of its own.
void naming_the_device(Worker& worker, const std::function<void(Worker&)>& body) {
  try {
    body(worker);
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(ErrorCode::kOutOfMemory,
                "device " + to_string(worker.id()) + ": " + error.what_without_backtrace());
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInternal,
                "device " + to_string(worker.id()) + ": " + error.what_without_backtrace());
  }
}

}  // namespace

void WorkerPool::run(std::span<const DeviceId> devices, const std::function<void(Worker&)>& body,
                     const std::function<void(const std::string&)>& on_failure) const {
  FirstError first_error;
  std::latch done(static_cast<std::ptrdiff_t>(devices.size()));
  for (const DeviceId id : devices) {
    Worker& worker = at(id);
    worker.post([&] {
      try {
        naming_the_device(worker, body);
      } catch (const std::exception& error) {
        const auto* ours = dynamic_cast<const Error*>(&error);
        const bool consequence = ours != nullptr && ours->code() == ErrorCode::kAborted &&
                                 dynamic_cast<const Stopped*>(ours) == nullptr;
        if (first_error.add(std::current_exception(), consequence)) {
          on_failure("device " + to_string(worker.id()) + " failed: " + error.what());
        }
      }
      done.count_down();
    });
  }
  done.wait();
  first_error.rethrow_if_any();
}

}  // namespace nereus
