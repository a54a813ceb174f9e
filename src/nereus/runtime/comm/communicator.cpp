#include "nereus/runtime/comm/communicator.h"

#include <ATen/core/grad_mode.h>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

void check_rank(int rank, int size) {
  NEREUS_CHECK(rank >= 0 && rank < size,
               "rank " + std::to_string(rank) + " of a group of " + std::to_string(size));
}

}  // namespace

void Communicator::all_reduce(at::Tensor& tensor, ReduceOp op) {
  if (size_ == 1) return;
  const StreamTimer::Scope timing(timer_, tensor.device());
  const at::NoGradGuard no_grad;
  do_all_reduce(tensor, op);
}

at::Tensor Communicator::all_gather(const at::Tensor& tensor, int64_t dim) {
  if (size_ == 1) return tensor;
  const StreamTimer::Scope timing(timer_, tensor.device());
  const at::NoGradGuard no_grad;
  return do_all_gather(tensor, dim);
}

at::Tensor Communicator::reduce_scatter(const at::Tensor& tensor, int64_t dim) {
  if (size_ == 1) return tensor;
  NEREUS_CHECK(tensor.size(dim) % size_ == 0,
               "extent " + std::to_string(tensor.size(dim)) + " over " + std::to_string(size_));
  const StreamTimer::Scope timing(timer_, tensor.device());
  const at::NoGradGuard no_grad;
  return do_reduce_scatter(tensor, dim);
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  check_rank(root, size_);
  if (size_ == 1) return;
  const StreamTimer::Scope timing(timer_, tensor.device());
  const at::NoGradGuard no_grad;
  do_broadcast(tensor, root);
}

void Communicator::send(const at::Tensor& tensor, int to) {
  check_rank(to, size_);
  const StreamTimer::Scope timing(timer_, tensor.device());
  const at::NoGradGuard no_grad;
  do_send(tensor, to);
}

void Communicator::recv(at::Tensor& tensor, int from) {
  check_rank(from, size_);
  const StreamTimer::Scope timing(timer_, tensor.device());
  const at::NoGradGuard no_grad;
  do_recv(tensor, from);
}

void Communicator::barrier() {
  if (size_ == 1) return;
  const StreamTimer::Scope timing(timer_, at::kCPU);
  do_barrier();
}

}  // namespace nereus
