#include "nereus/runtime/engine/state_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/state_ops.h"

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

}  // namespace

uint64_t hash_shard(const at::Tensor& shard, const Box& box, std::span<const int64_t> shape) {
  NEREUS_CHECK(shard.is_contiguous() && shard.numel() == volume(box),
               "a shard of another size than its box " + to_string(box));
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

ShardHashes::ShardHashes(at::Device device, size_t count) : on_host_(count) {
  if (device.is_cpu()) return;
  on_device_ = at::zeros({static_cast<int64_t>(count)}, at::device(device).dtype(at::kLong));
}

void ShardHashes::add(size_t slot, const at::Tensor& shard, const Box& box,
                      std::span<const int64_t> shape) {
  if (on_device_.defined()) {
    cuda::add_hash(shard, box, shape, on_device_[static_cast<int64_t>(slot)]);
  } else {
    on_host_[slot] += hash_shard(shard, box, shape);
  }
}

std::vector<uint64_t> ShardHashes::take() const {
  if (!on_device_.defined()) return on_host_;
  const at::Tensor sums = on_device_.cpu();
  const auto* values = sums.const_data_ptr<int64_t>();
  return {values, values + sums.numel()};
}

}  // namespace nereus
