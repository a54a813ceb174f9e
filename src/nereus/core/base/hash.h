// XXH3-64 hashes for proving that state survived a move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace nereus {

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0);
// 16 hex digits.
std::string to_hex(uint64_t hash);

}  // namespace nereus
