#include "nereus/core/base/error.h"
#include "nereus/runtime/comm/nccl_communicator.h"

namespace nereus {

std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(const std::vector<int>&,
                                                                   Seconds) {
  throw Error(ErrorCode::kInternal, "this build of nereus has no CUDA, so no NCCL");
}

}  // namespace nereus
