#include "nereus/core/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace nereus {

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string to_hex(uint64_t hash) {
  std::string hex(16, '0');
  for (auto digit = hex.rbegin(); digit != hex.rend(); ++digit, hash >>= 4) {
    *digit = "0123456789abcdef"[hash & 0xf];
  }
  return hex;
}

}  // namespace nereus
