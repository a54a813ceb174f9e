#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <bit>

#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/kernels.h"
#include "nereus/runtime/cuda/nn_ops.h"

namespace nereus::cuda {

namespace {

constexpr int64_t kAlignment = 16;  // bytes, of the kernels' loads

bool has_element(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

Element element_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return Element::kFloat;
    case at::kBFloat16:
      return Element::kBFloat16;
    default:
      return Element::kHalf;
  }
}

// Where a call on x's device goes.
class Launch {
 public:
  explicit Launch(const at::Tensor& x)
      : device_(x.device()), stream_(c10::cuda::getCurrentCUDAStream(x.get_device())) {}
  operator cudaStream_t() const { return stream_; }

 private:
  c10::cuda::CUDAGuard device_;
  c10::cuda::CUDAStream stream_;
};

template <class T>
T* pointer(const at::Tensor& x) {
  NEREUS_CHECK(x.is_contiguous(), "a tensor for a kernel is not contiguous");
  return x.mutable_data_ptr<T>();
}
void* pointer(const at::Tensor& x) {
  NEREUS_CHECK(x.is_contiguous(), "a tensor for a kernel is not contiguous");
  return x.mutable_data_ptr();
}

Pages pages_of(const Paged& cache) {
  const auto block_tokens = static_cast<uint64_t>(cache.keys.size(1));
  NEREUS_CHECK(std::has_single_bit(block_tokens), "blocks of a power of two of tokens");
  return {.tables = pointer<int32_t>(cache.tables),
          .width = cache.tables.size(1),
          .shift = std::countr_zero(block_tokens)};
}

// [n, heads, d] whose tokens the kernels can read where they are, or a copy.
at::Tensor packed_heads(const at::Tensor& x) {
  const bool packed = x.stride(2) == 1 && x.stride(1) == x.size(2) &&
                      x.stride(0) * x.element_size() % kAlignment == 0 &&
                      reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kAlignment == 0;
  return packed ? x : x.contiguous();
}

SoftmaxCall softmax_call(const at::Tensor& logits, const at::Tensor& columns, double temperature) {
  return {.element = element_of(logits),
          .logits = pointer(logits),
          .rows = logits.size(0),
          .size = logits.size(1),
          .columns = pointer<int64_t>(columns),
          .temperature = static_cast<float>(temperature)};
}

}  // namespace

bool takes(const at::Tensor& x, int64_t width) {
  return x.is_cuda() && has_element(x.scalar_type()) && width * x.element_size() % kAlignment == 0;
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
  at::Tensor out = at::empty({rows, width}, gate_up.options());
  C10_CUDA_CHECK(launch_swiglu(element_of(gate_up), pointer(gate_up), rows, width, pointer(out),
                               Launch(gate_up)));
  return out;
}

at::Tensor swiglu_backward(const at::Tensor& grad, const at::Tensor& gate_up) {
  at::Tensor out = at::empty_like(gate_up);
  C10_CUDA_CHECK(launch_swiglu_backward(element_of(gate_up), pointer(grad), pointer(gate_up),
                                        gate_up.size(0), gate_up.size(1) / 2, pointer(out),
                                        Launch(gate_up)));
  return out;
}

AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
                       double eps) {
  AddedNorm out{at::empty_like(x), at::empty_like(x)};
  const AddNormCall call{.element = element_of(x),
                         .x = pointer(x),
                         .y = pointer(y),
                         .weight = pointer(weight),
                         .sum = pointer(out.sum),
                         .normed = pointer(out.normed),
                         .rows = x.size(0),
                         .width = x.size(1),
                         .eps = static_cast<float>(eps)};
  C10_CUDA_CHECK(launch_add_rms_norm(call, Launch(x)));
  return out;
}

at::Tensor rope(const at::Tensor& x, int64_t rotated, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& positions, bool inverse) {
  const at::Tensor packed = packed_heads(x);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const RopeCall call{.element = element_of(x),
                      .x = packed.const_data_ptr(),
                      .stride = packed.stride(0),
                      .y = pointer(y),
                      .cos = pointer(cos),
                      .sin = pointer(sin),
                      .positions = pointer<int64_t>(positions),
                      .tokens = x.size(0),
                      .heads = static_cast<int>(x.size(1)),
                      .rotated = static_cast<int>(rotated),
                      .head_dim = static_cast<int>(x.size(2)),
                      .inverse = inverse};
  C10_CUDA_CHECK(launch_rope(call, Launch(x)));
  return y;
}

void softmax_sums(const at::Tensor& logits, const at::Tensor& columns, double temperature,
                  const at::Tensor& sums) {
  C10_CUDA_CHECK(launch_softmax_sums(softmax_call(logits, columns, temperature),
                                     sums.mutable_data_ptr<float>(), sums.stride(0),
                                     Launch(logits)));
}

void softmax_backward(const at::Tensor& logits, const at::Tensor& columns, double temperature,
                      const at::Tensor& log_z, const at::Tensor& entropy,
                      const at::Tensor& grad_log_probs, const at::Tensor& grad_entropy) {
  const SoftmaxGradient gradient{.log_z = pointer<float>(log_z),
                                 .entropy = pointer<float>(entropy),
                                 .grad_log_probs = pointer<float>(grad_log_probs),
                                 .grad_entropy = pointer<float>(grad_entropy)};
  C10_CUDA_CHECK(launch_softmax_backward(softmax_call(logits, columns, temperature), gradient,
                                         Launch(logits)));
}

bool decodes(at::Device device, at::ScalarType type, int64_t head_dim) {
  return device.is_cuda() && has_element(type) &&
         std::ranges::find(kDecodeHeadDims, head_dim) != std::end(kDecodeHeadDims);
}

at::Tensor append_rotated(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                          const Paged& cache) {
  const at::Tensor packed = packed_heads(qkv);
  const int64_t kv_heads = cache.keys.size(2), heads = qkv.size(1) - 2 * kv_heads;
  at::Tensor q = at::empty({qkv.size(0), heads, qkv.size(2)}, qkv.options());
  const AppendCall call{.element = element_of(qkv),
                        .qkv = packed.const_data_ptr(),
                        .stride = packed.stride(0),
                        .q = pointer(q),
                        .keys = pointer(cache.keys),
                        .values = pointer(cache.values),
                        .pages = pages_of(cache),
                        .cos = pointer(cos),
                        .sin = pointer(sin),
                        .lengths = pointer<int64_t>(cache.lengths),
                        .rows = qkv.size(0),
                        .heads = static_cast<int>(heads),
                        .kv_heads = static_cast<int>(kv_heads),
                        .head_dim = static_cast<int>(qkv.size(2))};
  C10_CUDA_CHECK(launch_append_rotated(call, Launch(qkv)));
  return q;
}

at::Tensor decode_attention(const at::Tensor& q, const Paged& cache) {
  at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  DecodeCall call{.element = element_of(q),
                  .q = pointer(q),
                  .keys = pointer(cache.keys),
                  .values = pointer(cache.values),
                  .pages = pages_of(cache),
                  .lengths = pointer<int64_t>(cache.lengths),
                  .out = pointer(out),
                  .rows = q.size(0),
                  .heads = static_cast<int>(q.size(1)),
                  .kv_heads = static_cast<int>(cache.keys.size(2)),
                  .head_dim = static_cast<int>(q.size(2))};
  int multiprocessors = 0;
  C10_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, q.get_device()));
  call.splits = decode_splits(call, multiprocessors);
  at::Tensor partial;
  if (call.splits > 1) {
    partial = at::empty({decode_partial_size(call)}, q.options().dtype(at::kFloat));
    call.partial = pointer<float>(partial);
  }
  C10_CUDA_CHECK(launch_decode_attention(call, Launch(q)));
  return out;
}

void draw(const at::Tensor& logits, const at::Tensor& allowed, const at::Tensor& sample_ids,
          const at::Tensor& positions, const Draw& how, const at::Tensor& drawn) {
  const DrawCall call{.element = element_of(logits),
                      .logits = pointer(logits),
                      .allowed = pointer(allowed),
                      .rows = logits.size(0),
                      .vocab = logits.size(1),
                      .sample_ids = pointer<int64_t>(sample_ids),
                      .positions = pointer<int64_t>(positions),
                      .seed = how.seed,
                      .temperature = static_cast<float>(how.temperature),
                      .greedy = how.greedy,
                      .tokens = pointer<double>(drawn),
                      .log_probs = pointer<double>(drawn) + logits.size(0)};
  C10_CUDA_CHECK(launch_draw(call, Launch(logits)));
}

}  // namespace nereus::cuda
