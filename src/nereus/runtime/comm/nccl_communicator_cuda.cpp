#include "nereus/runtime/comm/nccl_communicator.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/runtime/comm/local_communicator.h"
#include "nereus/runtime/comm/nccl_group_cuda.h"

namespace nereus {

namespace {

ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat;
    case at::kDouble:
      return ncclDouble;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclHalf;
    case at::kLong:
      return ncclInt64;
    case at::kInt:
      return ncclInt32;
    default:
      throw Error(ErrorCode::kInternal,
                  std::string("no collective of ") + c10::toString(tensor.scalar_type()));
  }
}

// What ranks tell each other on the host before an all-gather. Two slots alternate, so that one
// meeting is enough.
struct Extents {
  explicit Extents(int size) {
    for (std::vector<int64_t>& slot : slots) slot.resize(size);
  }
  std::array<std::vector<int64_t>, 2> slots;
};

class NcclCommunicator final : public LocalCommunicator {
 public:
  NcclCommunicator(int rank, std::shared_ptr<HostGroup> host, std::shared_ptr<NcclGroup> nccl,
                   std::shared_ptr<Extents> extents)
      : LocalCommunicator(rank, std::move(host)),
        nccl_(std::move(nccl)),
        extents_(std::move(extents)) {}

  void abort(const std::string& reason) override { nccl_->abort(reason); }
  bool is_recordable() const override { return true; }

 protected:
  void do_all_reduce(at::Tensor& tensor, ReduceOp op) override {
    in_place(tensor, "all-reduce", [&](at::Tensor& packed, ncclComm_t comm, cudaStream_t stream) {
      void* data = packed.mutable_data_ptr();
      return ncclAllReduce(data, data, packed.numel(), type_of(packed),
                           op == ReduceOp::kSum ? ncclSum : ncclMax, comm, stream);
    });
  }

  at::Tensor do_all_gather(const at::Tensor& tensor, int64_t dim) override {
    const std::vector<int64_t> extents = exchange(tensor.size(dim));
    const int64_t longest = std::ranges::max(extents);
    at::Tensor packed = tensor.contiguous();
    if (tensor.size(dim) < longest) {
      std::vector<int64_t> sizes = tensor.sizes().vec();
      sizes[dim] = longest;
      packed = at::empty(sizes, tensor.options());
      packed.narrow(dim, 0, tensor.size(dim)).copy_(tensor);
    }
    std::vector<int64_t> sizes = packed.sizes().vec();
    sizes.insert(sizes.begin(), size());
    const at::Tensor all = at::empty(sizes, packed.options());
    nccl_->enqueue(rank(), "all-gather", packed, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(packed.const_data_ptr(), all.mutable_data_ptr(), packed.numel(),
                           type_of(packed), comm, stream);
    });
    if (std::ranges::min(extents) == longest) {
      return all.movedim(0, dim).flatten(dim, dim + 1);
    }
    std::vector<at::Tensor> parts;
    for (int i = 0; i < size(); ++i) parts.push_back(all[i].narrow(dim, 0, extents[i]));
    return at::cat(parts, dim);
  }

  at::Tensor do_reduce_scatter(const at::Tensor& tensor, int64_t dim) override {
    const at::Tensor packed = tensor.movedim(dim, 0).contiguous();
    std::vector<int64_t> sizes = packed.sizes().vec();
    sizes[0] /= size();
    const at::Tensor part = at::empty(sizes, packed.options());
    nccl_->enqueue(rank(), "reduce-scatter", packed, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(packed.const_data_ptr(), part.mutable_data_ptr(), part.numel(),
                               type_of(part), ncclSum, comm, stream);
    });
    return part.movedim(0, dim);
  }

  void do_broadcast(at::Tensor& tensor, int root) override {
    in_place(tensor, "broadcast", [&](at::Tensor& packed, ncclComm_t comm, cudaStream_t stream) {
      void* data = packed.mutable_data_ptr();
      return ncclBroadcast(data, data, packed.numel(), type_of(packed), root, comm, stream);
    });
  }

 private:
  // NCCL wants contiguous memory.
  template <class Call>
  void in_place(at::Tensor& tensor, const char* operation, const Call& call) {
    at::Tensor packed = tensor.contiguous();
    nccl_->enqueue(rank(), operation, packed, [&](ncclComm_t comm, cudaStream_t stream) {
      return call(packed, comm, stream);
    });
    if (!tensor.is_contiguous()) tensor.copy_(packed);
  }

  std::vector<int64_t> exchange(int64_t extent) {
    std::vector<int64_t>& slot = extents_->slots[turn_];
    turn_ = 1 - turn_;
    slot[rank()] = extent;
    group().meet();
    return slot;
  }

  std::shared_ptr<NcclGroup> nccl_;
  std::shared_ptr<Extents> extents_;
  int turn_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(const std::vector<int>& devices,
                                                                   Seconds patience) {
  const auto size = static_cast<int>(devices.size());
  // A group of one does nothing anywhere.
  if (size == 1) return make_thread_communicators(1);
  const auto host = std::make_shared<HostGroup>(size);
  const auto nccl = std::make_shared<NcclGroup>(devices, host, patience);
  const auto extents = std::make_shared<Extents>(size);
  std::vector<std::unique_ptr<Communicator>> handles;
  handles.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    handles.push_back(std::make_unique<NcclCommunicator>(rank, host, nccl, extents));
  }
  return handles;
}

}  // namespace nereus
