// Damage done to valid inputs, as editors, disks and attackers do it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nereus::fuzz {

// One to three mutations of one of `seeds`: flipped bits, ranges that are cut, doubled or taken
// from elsewhere, numbers and other values replaced by extreme ones or by another type, deep
// nesting, repeated keys, broken UTF-8, byte order marks, NULs. A function of its arguments alone.
std::string mutated(const std::vector<std::string>& seeds, uint64_t seed);

}  // namespace nereus::fuzz
