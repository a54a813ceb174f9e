// A group of NCCL ranks in one process, watched.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "nereus/core/base/units.h"
#include "nereus/runtime/comm/host_group.h"

namespace nereus {

class NcclGroup final {
 public:
  NcclGroup(std::vector<int> devices, std::shared_ptr<HostGroup> host, Seconds patience);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Calls call(communicator, stream) for the calling thread's current stream of the rank's device;
  // `tensor` is what the operation is about, for errors. Returns when all ranks have launched the
  // operation: its kernels wait for each other, and a rank that went on might call something of the
  // driver that waits for its own kernel (the first use of another one, a copy to pageable memory,
  // cudaFree) with a lock that keeps the others from launching theirs. What is recorded into a
  // graph is not launched: then whoever replays the graph has to meet the others. Throws
  // Error(kAborted) after abort().
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  void enqueue(int rank, const char* operation, const at::Tensor& tensor, const Call& call);

  // Also ends what the devices are waiting in.
  void abort(const std::string& reason);

 private:
  struct Pending {
    std::string what;
    int64_t number = 0;  // of the rank's operations
    std::chrono::steady_clock::time_point since;
    c10::Event end;
  };

  void warm_up();
  // True unless the operation was recorded into a graph.
  bool launch(int rank, const char* operation, const at::Tensor& tensor, const Call& call);
  void watch(const std::stop_token& stop, Seconds patience);
  // Why the group has to be given up, or nothing.
  std::string overdue(Seconds patience);
  std::string overdue_or_failed(Seconds patience);

  std::vector<int> devices_;
  std::shared_ptr<HostGroup> host_;
  std::shared_mutex use_;  // shared by whoever uses comms_, alone for whoever aborts them
  std::vector<ncclComm_t> comms_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any wake_;
  std::vector<std::deque<Pending>> pending_;  // by rank
  std::vector<int64_t> enqueued_;
  std::jthread watchdog_;
};

}  // namespace nereus
