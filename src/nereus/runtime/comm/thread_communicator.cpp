// Ranks are threads of one process, on any devices. Every collective is: publish a snapshot, meet,
// read the others' snapshots. Two slots alternate, so one meeting a collective is enough: a slot is
// filled again only after the next collective's meeting, which every reader of the slot has to
// attend.
#include <array>
#include <atomic>

#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "nereus/runtime/comm/local_communicator.h"

namespace nereus {

namespace {

// Other threads may read what this thread's kernels wrote, or free what they read.
void finish_kernels(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

struct Slot {
  std::vector<at::Tensor> snapshots;  // per rank
  std::atomic<int> readers_done{0};
};

// Slots belong to a group of ranks.
struct Slots {
  explicit Slots(int size) {
    for (Slot& slot : slots) slot.snapshots.resize(size);
  }
  std::array<Slot, 2> slots;
};

class ThreadCommunicator final : public LocalCommunicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<HostGroup> group, std::shared_ptr<Slots> slots)
      : LocalCommunicator(rank, std::move(group)), slots_(std::move(slots)) {}

  // Operations between ranks wait for the device.
  bool is_recordable() const override { return size() == 1; }

 protected:
  void do_all_reduce(at::Tensor& tensor, ReduceOp op) override {
    exchange(tensor, [&](const std::vector<at::Tensor>& parts) { reduce(parts, op, tensor); });
  }

  at::Tensor do_all_gather(const at::Tensor& tensor, int64_t dim) override {
    at::Tensor whole;
    exchange(tensor, [&](const std::vector<at::Tensor>& parts) {
      std::vector<at::Tensor> here;
      here.reserve(parts.size());
      for (const at::Tensor& part : parts) here.push_back(part.to(tensor.device()));
      whole = at::cat(here, dim);
    });
    return whole;
  }

  at::Tensor do_reduce_scatter(const at::Tensor& tensor, int64_t dim) override {
    const int64_t extent = tensor.size(dim) / size();
    at::Tensor result = tensor.narrow(dim, rank() * extent, extent).clone();
    exchange(tensor, [&](std::vector<at::Tensor> parts) {
      for (at::Tensor& part : parts) part = part.narrow(dim, rank() * extent, extent);
      reduce(parts, ReduceOp::kSum, result);
    });
    return result;
  }

  void do_broadcast(at::Tensor& tensor, int root) override {
    const at::Tensor nothing = tensor.flatten().narrow(0, 0, 0);
    exchange(rank() == root ? tensor : nothing, [&](const std::vector<at::Tensor>& parts) {
      if (rank() != root) tensor.copy_(parts[root]);
    });
  }

 private:
  // Calls read(snapshots of all ranks in rank order) once all are published; the last reader frees
  // them.
  template <class Read>
  void exchange(const at::Tensor& tensor, const Read& read) {
    Slot& slot = slots_->slots[turn_];
    turn_ = 1 - turn_;
    slot.snapshots[rank()] = tensor.clone();
    finish_kernels(tensor.device());
    group().meet();
    read(slot.snapshots);
    finish_kernels(tensor.device());
    if (slot.readers_done.fetch_add(1) + 1 == size()) {
      for (at::Tensor& snapshot : slot.snapshots) snapshot.reset();
      slot.readers_done.store(0);
    }
  }

  static void reduce(const std::vector<at::Tensor>& parts, ReduceOp op, at::Tensor& result) {
    result.copy_(parts[0]);
    for (size_t i = 1; i < parts.size(); ++i) {
      const at::Tensor part = parts[i].to(result.device());
      if (op == ReduceOp::kSum) {
        result.add_(part);
      } else {
        at::maximum_out(result, result, part);
      }
    }
  }

  std::shared_ptr<Slots> slots_;
  int turn_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size) {
  const auto group = std::make_shared<HostGroup>(size);
  const auto slots = std::make_shared<Slots>(size);
  std::vector<std::unique_ptr<Communicator>> handles;
  handles.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    handles.push_back(std::make_unique<ThreadCommunicator>(rank, group, slots));
  }
  return handles;
}

}  // namespace nereus
