#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/nn_ops.h"

namespace nereus::cuda {

namespace {

[[noreturn]] void absent() {
  throw Error(ErrorCode::kInternal, "this build of nereus has no CUDA");
}

}  // namespace

bool takes(const at::Tensor&, int64_t) { return false; }
bool decodes(at::Device, at::ScalarType, int64_t) { return false; }

at::Tensor swiglu(const at::Tensor&) { absent(); }
at::Tensor swiglu_backward(const at::Tensor&, const at::Tensor&) { absent(); }
AddedNorm add_rms_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  absent();
}
at::Tensor rope(const at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                bool) {
  absent();
}
void softmax_sums(const at::Tensor&, const at::Tensor&, double, const at::Tensor&) { absent(); }
void softmax_backward(const at::Tensor&, const at::Tensor&, double, const at::Tensor&,
                      const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  absent();
}
at::Tensor append_rotated(const at::Tensor&, const at::Tensor&, const at::Tensor&, const Paged&) {
  absent();
}
at::Tensor decode_attention(const at::Tensor&, const Paged&) { absent(); }
void draw(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const Draw&,
          const at::Tensor&) {
  absent();
}

}  // namespace nereus::cuda
