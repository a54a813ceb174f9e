#include "nereus/core/base/random.h"

#include <cstddef>
#include <numeric>
#include <utility>

namespace nereus {

namespace {

uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

// The first 64 of the 128 bits drawn for a key.
uint64_t draw64(const RandomKey& key) {
  const auto words = philox(key);
  return (uint64_t{words[0]} << 32) | words[1];
}

}  // namespace

std::array<uint32_t, 4> philox(const RandomKey& key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> counter = {low(key.stream), high(key.stream), low(key.position),
                                     high(key.position)};
  uint32_t key0 = low(key.seed), key1 = high(key.seed);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key0, low(product1),
               high(product0) ^ counter[3] ^ key1, low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

double uniform(const RandomKey& key) { return static_cast<double>(draw64(key) >> 11) * 0x1p-53; }

std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  // Fisher-Yates; the remainder of 64 random bits is biased by less than n / 2^64.
  for (uint64_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[draw64({seed, stream, left}) % left]);
  }
  return order;
}

}  // namespace nereus
