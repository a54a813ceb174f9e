#include "nereus/comm/communicator.h"

#include <chrono>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "nereus/base/error.h"

namespace nereus {

namespace {

// Adds the wall time of its scope, also one left by an exception.
class Stopwatch {
 public:
  explicit Stopwatch(Seconds& total) : total_(total) {}
  ~Stopwatch() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    total_ += Seconds(passed.count());
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Seconds& total_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void check_rank(int rank, int size) {
  NEREUS_CHECK(rank >= 0 && rank < size,
               "rank " + std::to_string(rank) + " of a group of " + std::to_string(size));
}

}  // namespace

void Communicator::all_reduce(at::Tensor& tensor, ReduceOp op) {
  if (size_ == 1) return;
  const Stopwatch stopwatch(elapsed_);
  const at::NoGradGuard no_grad;
  do_all_reduce(tensor, op);
}

at::Tensor Communicator::all_gather(const at::Tensor& tensor, int64_t dim) {
  if (size_ == 1) return tensor;
  const Stopwatch stopwatch(elapsed_);
  const at::NoGradGuard no_grad;
  return do_all_gather(tensor, dim);
}

at::Tensor Communicator::reduce_scatter(const at::Tensor& tensor, int64_t dim) {
  if (size_ == 1) return tensor;
  NEREUS_CHECK(tensor.size(dim) % size_ == 0,
               "extent " + std::to_string(tensor.size(dim)) + " over " + std::to_string(size_));
  const Stopwatch stopwatch(elapsed_);
  const at::NoGradGuard no_grad;
  return do_reduce_scatter(tensor, dim);
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  check_rank(root, size_);
  if (size_ == 1) return;
  const Stopwatch stopwatch(elapsed_);
  const at::NoGradGuard no_grad;
  do_broadcast(tensor, root);
}

void Communicator::send(const at::Tensor& tensor, int to) {
  check_rank(to, size_);
  const Stopwatch stopwatch(elapsed_);
  const at::NoGradGuard no_grad;
  do_send(tensor, to);
}

void Communicator::recv(at::Tensor& tensor, int from) {
  check_rank(from, size_);
  const Stopwatch stopwatch(elapsed_);
  const at::NoGradGuard no_grad;
  do_recv(tensor, from);
}

void Communicator::barrier() {
  if (size_ == 1) return;
  const Stopwatch stopwatch(elapsed_);
  do_barrier();
}

Seconds Communicator::take_elapsed() { return std::exchange(elapsed_, Seconds()); }

}  // namespace nereus
