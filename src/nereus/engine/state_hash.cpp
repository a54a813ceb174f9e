#include "nereus/engine/state_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "nereus/base/error.h"

namespace nereus {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / φ
constexpr uint64_t kFirstFactor = 0xBF58476D1CE4E5B9;
constexpr uint64_t kSecondFactor = 0x94D049BB133111EB;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * kFirstFactor;
  x = (x ^ (x >> 27)) * kSecondFactor;
  return x ^ (x >> 31);
}

// Elements whose global indices follow each other.
template <class Bits>
uint64_t hash_run(const Bits* values, int64_t count, uint64_t first_index) {
  uint64_t sum = 0;
  uint64_t offset = first_index * kGolden;
  for (int64_t i = 0; i < count; ++i, offset += kGolden) sum += mix(values[i] + offset);
  return sum;
}

std::vector<int64_t> strides_of(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (auto d = static_cast<int64_t>(shape.size()) - 2; d >= 0; --d) {
    strides[d] = strides[d + 1] * shape[d + 1];
  }
  return strides;
}

template <class Bits>
uint64_t hash_box(const Bits* values, const Box& box, std::span<const int64_t> shape) {
  const std::vector<int64_t> strides = strides_of(shape);
  // Dimensions from `inner` on form one run: all but the first of them are whole.
  size_t inner = shape.empty() ? 0 : shape.size() - 1;
  while (inner > 0 && box.end[inner] - box.begin[inner] == shape[inner]) --inner;
  const int64_t run = shape.empty() ? 1 : (box.end[inner] - box.begin[inner]) * strides[inner];
  std::vector<int64_t> position = box.begin;
  uint64_t sum = 0;
  for (const Bits* end = values + volume(box); values != end; values += run) {
    uint64_t index = 0;
    for (size_t d = 0; d < position.size(); ++d) index += position[d] * strides[d];
    sum += hash_run(values, run, index);
    for (size_t d = inner; d-- > 0;) {
      if (++position[d] < box.end[d]) break;
      position[d] = box.begin[d];
    }
  }
  return sum;
}

// Elements as non-negative 64-bit integers with the same bits.
at::Tensor bits_of(const at::Tensor& values) {
  switch (values.element_size()) {
    case 2:
      return values.view(at::kShort).to(at::kLong).bitwise_and_(0xFFFF);
    case 4:
      return values.view(at::kInt).to(at::kLong).bitwise_and_(0xFFFFFFFF);
    default:
      return values.view(at::kLong).clone();
  }
}

at::Scalar scalar(uint64_t bits) { return static_cast<int64_t>(bits); }

// x ^= x >> shift, where ATen's shift copies the sign.
void fold(at::Tensor& x, int64_t shift) {
  const uint64_t mask = (uint64_t{1} << (64 - shift)) - 1;
  x.bitwise_xor_(x.bitwise_right_shift(shift).bitwise_and_(scalar(mask)));
}

// The flat global index of each element of the box.
at::Tensor indices_of(const Box& box, std::span<const int64_t> shape, at::Device device) {
  const std::vector<int64_t> strides = strides_of(shape);
  at::Tensor indices = at::zeros({}, at::device(device).dtype(at::kLong));
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> along(shape.size(), 1);
    along[d] = -1;
    indices = indices +
              at::arange(box.begin[d], box.end[d], indices.options()).mul_(strides[d]).view(along);
  }
  return indices;
}

uint64_t hash_slice_by_ops(const at::Tensor& slice, const Box& box,
                           std::span<const int64_t> shape) {
  at::Tensor x = bits_of(slice);
  x.add_(indices_of(box, shape, slice.device()).mul_(scalar(kGolden)));
  fold(x, 30);
  x.mul_(scalar(kFirstFactor));
  fold(x, 27);
  x.mul_(scalar(kSecondFactor));
  fold(x, 31);
  return static_cast<uint64_t>(x.sum().item<int64_t>());
}

}  // namespace

uint64_t hash_shard(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape) {
  NEREUS_CHECK(shard.is_contiguous() && shard.numel() == volume(box),
               "a shard of another size than its box " + to_string(box));
  if (!shard.device().is_cpu()) return hash_shard_by_ops(shard, box, shape);
  const void* data = shard.const_data_ptr();
  switch (shard.element_size()) {
    case 2:
      return hash_box(static_cast<const uint16_t*>(data), box, shape);
    case 4:
      return hash_box(static_cast<const uint32_t*>(data), box, shape);
    default:
      return hash_box(static_cast<const uint64_t*>(data), box, shape);
  }
}

uint64_t hash_shard_by_ops(const at::Tensor& shard, const Box& box,
                           std::span<const int64_t> shape) {
  if (shape.empty()) return hash_slice_by_ops(shard, box, shape);
  constexpr int64_t kElements = int64_t{1} << 20;  // at a time
  const int64_t rows = shard.size(0);
  const int64_t step = std::max<int64_t>(1, kElements * rows / shard.numel());
  uint64_t sum = 0;
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    Box slice = box;
    slice.begin[0] = box.begin[0] + row;
    slice.end[0] = slice.begin[0] + count;
    sum += hash_slice_by_ops(shard.narrow(0, row, count), slice, shape);
  }
  return sum;
}

}  // namespace nereus
