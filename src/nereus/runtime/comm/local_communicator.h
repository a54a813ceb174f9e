// What communicators between threads of one process have in common.
#pragma once

#include <memory>

#include "nereus/runtime/comm/communicator.h"
#include "nereus/runtime/comm/host_group.h"

namespace nereus {

// Messages are copies on the sender's device, which the receiver fetches: over NVLink between GPUs.
class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(int rank, std::shared_ptr<HostGroup> group)
      : Communicator(rank, group->size()), group_(std::move(group)) {}

  void abort(const std::string& reason) override { group_->abort(reason); }
  bool is_aborted() const override { return group_->is_aborted(); }
  void throw_if_aborted() const override { group_->throw_if_aborted(); }

 protected:
  void do_send(const at::Tensor& tensor, int to) override;
  void do_recv(at::Tensor& tensor, int from) override;
  void do_barrier() override { group_->meet(); }

  HostGroup& group() { return *group_; }

 private:
  std::shared_ptr<HostGroup> group_;
};

}  // namespace nereus
