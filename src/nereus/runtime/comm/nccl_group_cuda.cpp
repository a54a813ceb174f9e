#include "nereus/runtime/comm/nccl_group_cuda.h"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/device.h"

namespace nereus {

namespace {

void check(ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess) return;
  throw Error(ErrorCode::kInternal, "NCCL, " + what + ": " + ncclGetErrorString(result) + " (" +
                                        ncclGetLastError(nullptr) + ")");
}

std::string names_of(const std::vector<int>& devices) {
  std::string names;
  for (const int device : devices) {
    names.append(names.empty() ? "cuda:" : ", cuda:").append(std::to_string(device));
  }
  return names;
}

}  // namespace

NcclGroup::NcclGroup(std::vector<int> devices, std::shared_ptr<HostGroup> host, Seconds patience)
    : devices_(std::move(devices)),
      host_(std::move(host)),
      comms_(devices_.size()),
      pending_(devices_.size()),
      enqueued_(devices_.size()) {
  check(ncclCommInitAll(comms_.data(), static_cast<int>(devices_.size()), devices_.data()),
        "a communicator of " + names_of(devices_));
  warm_up();
  watchdog_ =
      std::jthread([this, patience](const std::stop_token& stop) { watch(stop, patience); });
}

NcclGroup::~NcclGroup() {
  watchdog_.request_stop();
  watchdog_.join();
  if (host_->is_aborted()) return;  // abort() has freed them
  for (ncclComm_t comm : comms_) ncclCommDestroy(comm);
}

// The first collective connects the ranks, which waits for all of them: better here than later.
void NcclGroup::warm_up() {
  std::vector<at::Tensor> buffers;
  for (const int device : devices_) {
    buffers.push_back(at::zeros({1}, at::device(at::Device(at::kCUDA, device)).dtype(at::kFloat)));
  }
  ncclGroupStart();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const c10::cuda::CUDAGuard on(static_cast<c10::DeviceIndex>(devices_[i]));
    void* data = buffers[i].mutable_data_ptr();
    ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comms_[i],
                  c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(devices_[i])));
  }
  check(ncclGroupEnd(), "the first operation of " + names_of(devices_));
  for (const int device : devices_) {
    c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).synchronize();
  }
}

void NcclGroup::enqueue(int rank, const char* operation, const at::Tensor& tensor,
                        const Call& call) {
  if (launch(rank, operation, tensor, call)) host_->meet();
}

bool NcclGroup::launch(int rank, const char* operation, const at::Tensor& tensor,
                       const Call& call) {
  const std::shared_lock using_comms(use_);
  host_->throw_if_aborted();
  const std::string what =
      std::string(operation) + " of " + to_string(Bytes(static_cast<int64_t>(tensor.nbytes())));
  NEREUS_CHECK(tensor.is_cuda() && tensor.get_device() == devices_[rank],
               what + " on " + tensor.device().str() + " by rank " + std::to_string(rank) + " of " +
                   names_of(devices_));
  const c10::cuda::CUDAGuard on(tensor.device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  check(call(comms_[rank], stream), what + " over " + names_of(devices_));
  if (cuda::is_capturing()) return false;  // done when the graph runs, which nobody here sees

  c10::Event end(at::kCUDA);
  end.record(stream);
  const std::lock_guard lock(mutex_);
  std::deque<Pending>& pending = pending_[rank];
  while (!pending.empty() && pending.front().end.query()) pending.pop_front();
  pending.push_back({what, ++enqueued_[rank], std::chrono::steady_clock::now(), std::move(end)});
  return true;
}

void NcclGroup::abort(const std::string& reason) {
  if (!host_->abort(reason)) return;
  const std::unique_lock alone(use_);
  for (ncclComm_t comm : comms_) ncclCommAbort(comm);
}

void NcclGroup::watch(const std::stop_token& stop, Seconds patience) {
  const std::chrono::duration<double> pause(std::min(1.0, patience.count() / 4));
  while (true) {
    std::string reason;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, pause, [] { return false; });
      if (stop.stop_requested()) return;
      reason = overdue_or_failed(patience);
    }
    if (!reason.empty()) return abort(reason);
  }
}

// A device that has failed says so to whoever asks it anything.
std::string NcclGroup::overdue_or_failed(Seconds patience) {
  try {
    return overdue(patience);
  } catch (const std::exception& error) {
    return std::string("a device of ") + names_of(devices_) + " has failed: " + error.what();
  }
}

std::string NcclGroup::overdue(Seconds patience) {
  const auto now = std::chrono::steady_clock::now();
  for (size_t rank = 0; rank < pending_.size(); ++rank) {
    std::deque<Pending>& pending = pending_[rank];
    while (!pending.empty() && pending.front().end.query()) pending.pop_front();
    if (pending.empty()) continue;
    const Pending& oldest = pending.front();
    const std::chrono::duration<double> waited = now - oldest.since;
    if (waited.count() <= patience.count()) continue;
    std::string reason = oldest.what + " over " + names_of(devices_) + ", operation " +
                         std::to_string(oldest.number) +
                         ", has not ended on cuda:" + std::to_string(devices_[rank]) + " after " +
                         to_string(Seconds(waited.count())) + "; operations begun:";
    for (size_t i = 0; i < devices_.size(); ++i) {
      reason.append(" ").append(std::to_string(enqueued_[i]));
      reason.append(" on cuda:").append(std::to_string(devices_[i]));
    }
    return reason;
  }
  return {};
}

}  // namespace nereus
