// Collectives between the ranks of one group. Implementations: threads of one process (here), and
// NCCL (nccl_communicator.h); both pass the same contract tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nereus/core/base/units.h"
#include "nereus/runtime/comm/stream_timer.h"

namespace nereus {

enum class ReduceOp { kSum, kMax };

// One rank's handle. Used by one thread at a time; all ranks must call the same operations in the
// same order. Results are bit-identical on all ranks and from run to run; those between threads add
// rank 0, 1, 2, … Every operation throws Error(kAborted) with the reason once any rank called
// abort(), also in ranks that are already waiting. On an accelerator operations are enqueued on the
// calling thread's current stream; one that is there already when somebody aborts ends with a
// meaningless result, and the next one throws. In collectives all ranks meet on the host.
class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // In place; same shape and dtype on all ranks. Any (also strided) tensor. A group of one does
  // nothing anywhere: all_gather and reduce_scatter then return their argument itself.
  void all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  // Concatenation over ranks along `dim`, in rank order. Extents along `dim` may differ per rank.
  at::Tensor all_gather(const at::Tensor& tensor, int64_t dim);
  // Sum over ranks, of which this rank gets its equal part along `dim` (extent divisible by size).
  at::Tensor reduce_scatter(const at::Tensor& tensor, int64_t dim);
  // In place, from `root` to all.
  void broadcast(at::Tensor& tensor, int root);
  // The message is buffered: send returns at once and `tensor` may be reused. recv waits for the
  // next message from `from` and copies it into `tensor` (same shape and dtype).
  void send(const at::Tensor& tensor, int to);
  void recv(at::Tensor& tensor, int from);
  void barrier();

  // Whether what it enqueues on an accelerator may be recorded into a graph (cuda::Graph). Then
  // ranks call barrier() after each replay, before anything else.
  virtual bool is_recordable() const = 0;

  // Wakes every rank of the group, now and later, with Error(kAborted, reason). Any thread.
  virtual void abort(const std::string& reason) = 0;
  virtual bool is_aborted() const = 0;
  // Throws that error if somebody has. Whoever acts on results of an accelerator asks when they are
  // there.
  virtual void throw_if_aborted() const = 0;

  // Seconds spent in operations since the last take, waiting included; on an accelerator what they
  // took on the calling thread's stream, whose end is waited for.
  Seconds take_elapsed() { return timer_.take(); }

 protected:
  virtual void do_all_reduce(at::Tensor& tensor, ReduceOp op) = 0;
  virtual at::Tensor do_all_gather(const at::Tensor& tensor, int64_t dim) = 0;
  virtual at::Tensor do_reduce_scatter(const at::Tensor& tensor, int64_t dim) = 0;
  virtual void do_broadcast(at::Tensor& tensor, int root) = 0;
  virtual void do_send(const at::Tensor& tensor, int to) = 0;
  virtual void do_recv(at::Tensor& tensor, int from) = 0;
  virtual void do_barrier() = 0;

 private:
  int rank_;
  int size_;
  StreamTimer timer_;
};

// The handles of a new group of `size` threads, one per rank. The group lives as long as any
// handle.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size);

}  // namespace nereus
