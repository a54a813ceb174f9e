#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "nereus/base/error.h"
#include "nereus/cuda/kernels.h"
#include "nereus/cuda/state_ops.h"

namespace nereus::cuda {

int device_count() { return c10::cuda::device_count(); }

namespace {

HashedBox hashed(const Box& box, std::span<const int64_t> shape) {
  const size_t dims = shape.size();
  std::vector<int64_t> strides(dims, 1);
  for (size_t d = dims; d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  // Dimensions from `inner` on form one run: all but the first of them are whole.
  size_t inner = dims == 0 ? 0 : dims - 1;
  while (inner > 0 && box.end[inner] - box.begin[inner] == shape[inner]) --inner;
  NEREUS_CHECK(inner <= HashedBox::kDims, "a box of too many dimensions: " + to_string(box));

  HashedBox out{.rows = {1, 1, 1}, .strides = {0, 0, 0}, .run = 1};
  if (dims > 0) out.run = (box.end[inner] - box.begin[inner]) * strides[inner];
  for (size_t d = 0; d < dims; ++d) out.first += box.begin[d] * strides[d];
  for (size_t d = 0; d < inner; ++d) {
    const size_t place = HashedBox::kDims - inner + d;
    out.rows[place] = box.end[d] - box.begin[d];
    out.strides[place] = strides[d];
  }
  return out;
}

int device_of(const at::Tensor& tensor) { return tensor.is_cuda() ? tensor.get_device() : -1; }

}  // namespace

void add_hash(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape,
              const at::Tensor& sum) {
  const auto stream = c10::cuda::getCurrentCUDAStream(shard.get_device());
  C10_CUDA_CHECK(launch_hash(shard.const_data_ptr(), static_cast<int>(shard.element_size()),
                             hashed(box, shape),
                             reinterpret_cast<uint64_t*>(sum.mutable_data_ptr<int64_t>()), stream));
}

void Copies::add(const at::Tensor& to, const at::Tensor& from) {
  if (to.dim() > 2 && !(to.is_contiguous() && from.is_contiguous())) {
    for (int64_t i = 0; i < to.size(0); ++i) add(to[i], from[i]);
    return;
  }
  Copy copy{.to = static_cast<char*>(to.mutable_data_ptr()),
            .from = static_cast<const char*>(from.const_data_ptr()),
            .width = static_cast<int64_t>(to.nbytes()),
            .to_device = device_of(to),
            .from_device = device_of(from)};
  if (!to.is_contiguous() || !from.is_contiguous()) {
    copy.rows = to.size(0);
    copy.width /= copy.rows;
    copy.to_pitch = to.stride(0) * to.element_size();
    copy.from_pitch = from.stride(0) * from.element_size();
  }
  if (!copies_.empty()) {
    Copy& last = copies_.back();
    const bool continues = last.rows == 1 && copy.rows == 1 && last.to + last.width == copy.to &&
                           last.from + last.width == copy.from &&
                           last.from_device == copy.from_device;
    if (continues) {
      last.width += copy.width;
      return;
    }
  }
  copies_.push_back(copy);
}

void Copies::enqueue() {
  for (const Copy& copy : copies_) {
    const bool between_gpus = copy.from_device >= 0 && copy.from_device != copy.to_device;
    if (between_gpus) {
      at::cuda::get_p2p_access(static_cast<c10::DeviceIndex>(copy.to_device),
                               static_cast<c10::DeviceIndex>(copy.from_device));
    }
    const auto stream =
        c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(copy.to_device));
    C10_CUDA_CHECK(copy.rows == 1
                       ? cudaMemcpyAsync(copy.to, copy.from, copy.width, cudaMemcpyDefault, stream)
                       : cudaMemcpy2DAsync(copy.to, copy.to_pitch, copy.from, copy.from_pitch,
                                           copy.width, copy.rows, cudaMemcpyDefault, stream));
  }
  copies_.clear();
}

}  // namespace nereus::cuda
