#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/state_ops.h"

namespace nereus::cuda {

namespace {

constexpr const char* kAbsent = "this build of nereus has no CUDA";

}  // namespace

void add_hash(const at::Tensor&, const Box&, std::span<const int64_t>, const at::Tensor&) {
  throw Error(ErrorCode::kInternal, kAbsent);
}

void Copies::add(const at::Tensor&, const at::Tensor&) {
  throw Error(ErrorCode::kInternal, kAbsent);
}

Copies::~Copies() = default;
void Copies::enqueue() {}
void Copies::join() {}

}  // namespace nereus::cuda
