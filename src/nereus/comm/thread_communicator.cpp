// Ranks are threads of one process, on any devices. Every collective is: publish a snapshot, meet,
// read the others' snapshots. Two slots alternate, so one meeting a collective is enough: a slot is
// filled again only after the next collective's meeting, which every reader of the slot has to
// attend.
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "nereus/base/error.h"
#include "nereus/comm/communicator.h"

namespace nereus {

namespace {

// Other threads may read what this thread's kernels wrote, or free what they read.
void finish_kernels(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

struct Mailbox {  // of one receiver
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::deque<at::Tensor>> from;  // one queue per sender
};

struct Slot {
  std::vector<at::Tensor> snapshots;  // per rank
  std::atomic<int> readers_done{0};
};

struct Group {
  explicit Group(int size) : size(size), mailboxes(size) {
    for (Slot& slot : slots) slot.snapshots.resize(size);
    for (Mailbox& mailbox : mailboxes) mailbox.from.resize(size);
  }

  void throw_if_aborted() {
    if (!aborted.load()) return;
    const std::lock_guard lock(reason_mutex);
    throw Error(ErrorCode::kAborted, reason);
  }

  // Returns when all ranks have arrived. Waiting sleeps (threads may outnumber cores).
  void meet() {
    // Read before `aborted`: abort() writes them in the other order, so that no wake-up is missed.
    const uint32_t now = meeting.load();
    throw_if_aborted();
    if (arrivals.fetch_add(1) + 1 == size) {
      arrivals.store(0);
      meeting.fetch_add(1);
      meeting.notify_all();
    } else {
      meeting.wait(now);
    }
    throw_if_aborted();
  }

  void abort(const std::string& why) {
    {
      const std::lock_guard lock(reason_mutex);
      if (aborted.load()) return;
      reason = why;
      aborted.store(true);
    }
    meeting.fetch_add(1);
    meeting.notify_all();
    for (Mailbox& mailbox : mailboxes) {
      const std::lock_guard lock(mailbox.mutex);  // a receiver is either before its check or asleep
      mailbox.arrived.notify_all();
    }
  }

  const int size;
  std::array<Slot, 2> slots;
  std::atomic<int> arrivals{0};
  std::atomic<uint32_t> meeting{0};
  std::vector<Mailbox> mailboxes;
  std::atomic<bool> aborted{false};
  std::mutex reason_mutex;
  std::string reason;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Group> group)
      : Communicator(rank, group->size), group_(std::move(group)) {}

  void abort(const std::string& reason) override { group_->abort(reason); }

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

  void do_send(const at::Tensor& tensor, int to) override {
    group_->throw_if_aborted();
    at::Tensor message = tensor.clone();
    finish_kernels(tensor.device());
    Mailbox& mailbox = group_->mailboxes[to];
    const std::lock_guard lock(mailbox.mutex);
    mailbox.from[rank()].push_back(std::move(message));
    mailbox.arrived.notify_all();
  }

  void do_recv(at::Tensor& tensor, int from) override {
    Mailbox& mailbox = group_->mailboxes[rank()];
    at::Tensor message;
    {
      std::unique_lock lock(mailbox.mutex);
      std::deque<at::Tensor>& queue = mailbox.from[from];
      mailbox.arrived.wait(lock, [&] { return group_->aborted.load() || !queue.empty(); });
      group_->throw_if_aborted();
      message = std::move(queue.front());
      queue.pop_front();
    }
    tensor.copy_(message);
    finish_kernels(tensor.device());
  }

  void do_barrier() override { group_->meet(); }

 private:
  // Calls read(snapshots of all ranks in rank order) once all are published; the last reader frees
  // them.
  template <class Read>
  void exchange(const at::Tensor& tensor, const Read& read) {
    Slot& slot = group_->slots[turn_];
    turn_ = 1 - turn_;
    slot.snapshots[rank()] = tensor.clone();
    finish_kernels(tensor.device());
    group_->meet();
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

  std::shared_ptr<Group> group_;
  int turn_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size) {
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> handles;
  handles.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    handles.push_back(std::make_unique<ThreadCommunicator>(rank, group));
  }
  return handles;
}

}  // namespace nereus
