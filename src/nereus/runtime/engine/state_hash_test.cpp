#include "nereus/runtime/engine/state_hash.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/engine/testing.h"

namespace nereus {
namespace {

const std::vector<int64_t> kShape = {6, 5, 8};

uint64_t hash_of(const at::Tensor& tensor) {
  return hash_shard(tensor, whole(tensor.sizes()), tensor.sizes());
}

class StateHash : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor random() const { return at::randn(kShape, at::dtype(GetParam())); }
};

TEST_P(StateHash, PartsOfAnyCutAddUp) {
  const at::Tensor tensor = random();
  const std::vector<std::vector<Box>> cuts = {
      {{{0, 0, 0}, {2, 5, 8}}, {{2, 0, 0}, {6, 5, 8}}},
      {{{0, 0, 0}, {6, 5, 3}}, {{0, 0, 3}, {6, 5, 8}}},
      {{{0, 0, 0}, {6, 2, 8}}, {{0, 2, 0}, {4, 5, 8}}, {{4, 2, 0}, {6, 5, 8}}}};
  for (const std::vector<Box>& cut : cuts) {
    uint64_t sum = 0;
    for (const Box& box : cut) {
      const at::Tensor shard = testing::region(tensor, box).contiguous();
      sum += hash_shard(shard, box, kShape);
    }
    EXPECT_EQ(sum, hash_of(tensor));
  }
}

TEST_P(StateHash, FindsEveryChangedBit) {
  const at::Tensor tensor = random();
  const uint64_t before = hash_of(tensor);
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t bit = 0; bit < tensor.nbytes() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ASSERT_NE(hash_of(tensor), before) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  EXPECT_EQ(hash_of(tensor), before);
}

// Values that differ in high bits only, as powers of two and signs do.
TEST_P(StateHash, FindsEveryExchangedPair) {
  at::Tensor tensor = at::ones({32}, at::dtype(GetParam()));
  for (int64_t i = 0; i < 32; ++i) tensor[i] *= (i % 2 == 0 ? 1 : -1) * (1 << i / 4);
  const uint64_t before = hash_of(tensor);
  for (int64_t i = 0; i < 32; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (tensor[i].equal(tensor[j])) continue;
      at::Tensor changed = tensor.clone();
      changed[i] = tensor[j];
      changed[j] = tensor[i];
      ASSERT_NE(hash_of(changed), before) << i << " and " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, StateHash,
                         ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf));

class StateHashOnGpu : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(StateHashOnGpu, IsTheSame) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const std::vector<std::pair<std::vector<int64_t>, Box>> cases = {
      {{6, 5, 8}, {{0, 0, 0}, {6, 5, 8}}},          {{6, 5, 8}, {{2, 1, 3}, {5, 4, 8}}},
      {{6, 5, 8}, {{1, 0, 0}, {4, 5, 8}}},          {{1000, 3000}, {{0, 0}, {1000, 3000}}},
      {{1000, 3000}, {{0, 7}, {1000, 1507}}},       {{1000, 3000}, {{500, 0}, {1000, 3000}}},
      {{4, 6, 5, 8}, {{1, 2, 1, 2}, {3, 5, 4, 7}}}, {{17}, {{3}, {17}}}};
  ShardHashes hashes(at::Device(at::kCUDA, 0), cases.size());
  std::vector<uint64_t> expected;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [shape, box] = cases[i];
    const at::Tensor shard = at::randn(extent(box), at::dtype(GetParam()));
    expected.push_back(hash_shard(shard, box, shape));
    hashes.add(i, shard.to(at::kCUDA), box, shape);
  }
  EXPECT_EQ(hashes.take(), expected);
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, StateHashOnGpu,
                         ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf));

}  // namespace
}  // namespace nereus
