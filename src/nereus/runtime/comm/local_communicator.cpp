#include "nereus/runtime/comm/local_communicator.h"

#include <ATen/TensorOperators.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace nereus {

void LocalCommunicator::do_send(const at::Tensor& tensor, int to) {
  Message message{tensor.clone(), std::nullopt};
  if (!tensor.is_cpu()) {
    const c10::impl::VirtualGuardImpl device(tensor.device().type());
    message.ready.emplace(tensor.device().type());
    message.ready->record(device.getStream(tensor.device()));
  }
  group_->post(rank(), to, std::move(message));
}

void LocalCommunicator::do_recv(at::Tensor& tensor, int from) {
  const Message message = group_->take(from, rank());
  if (message.ready) {
    const c10::impl::VirtualGuardImpl device(tensor.device().type());
    const c10::Stream stream = device.getStream(tensor.device());
    message.ready->block(stream);
    // The sender's allocator may use the memory again when this stream is done with it.
    device.recordDataPtrOnStream(message.tensor.storage().data_ptr(), stream);
  }
  tensor.copy_(message.tensor, /*non_blocking=*/true);
}

}  // namespace nereus
