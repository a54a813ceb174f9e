#include "nereus/core/base/hash.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace nereus {
namespace {

TEST(Hash, EmptyInputIsXxh3sPublishedValue) {
  EXPECT_EQ(to_hex(hash_bytes({})), "2d06800538d394c2");
}

TEST(Hash, EveryBitAndTheSeedCount) {
  std::vector<std::byte> bytes(1000, std::byte{7});
  const uint64_t before = hash_bytes(bytes);
  EXPECT_EQ(hash_bytes(bytes), before);
  EXPECT_NE(hash_bytes(bytes, 1), before);
  bytes[999] ^= std::byte{1};
  EXPECT_NE(hash_bytes(bytes), before);
}

TEST(Hash, HexHasSixteenDigits) {
  EXPECT_EQ(to_hex(0), "0000000000000000");
  EXPECT_EQ(to_hex(0x0123456789abcdef), "0123456789abcdef");
}

}  // namespace
}  // namespace nereus
