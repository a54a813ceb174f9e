// Counter-based random numbers (Philox 4x32-10, Salmon et al., SC'11): a pure function of its key,
// so sampling noise depends on the logical sample and never on which device drew it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nereus {

struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;    // e.g. the logical sample's number over the whole run
  uint64_t position = 0;  // e.g. the token's position
};

std::array<uint32_t, 4> philox(const RandomKey& key);
// Uniform in [0, 1), 53 bits.
double uniform(const RandomKey& key);
// A permutation of 0..n-1 determined by (seed, stream).
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream);

}  // namespace nereus
