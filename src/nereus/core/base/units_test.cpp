#include "nereus/core/base/units.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "nereus/core/base/json.h"

namespace nereus {
namespace {

static_assert(!std::is_convertible_v<int64_t, Bytes>);
static_assert(!std::is_constructible_v<Seconds, Bytes>);

TEST(Units, ArithmeticKeepsTheUnit) {
  Bytes bytes = Bytes(3) + Bytes(4) - Bytes(1);
  bytes += Bytes(2);
  EXPECT_EQ(bytes, Bytes(8));
  EXPECT_EQ(bytes * 0.5, Bytes(4));
  EXPECT_DOUBLE_EQ(Bytes(1) / Bytes(4), 0.25);
  EXPECT_LT(Seconds(1), Seconds(1.5));
}

TEST(Units, JsonRoundTrip) {
  EXPECT_EQ(Json(Bytes(1) * (1ll << 40)).get<Bytes>(), Bytes(1ll << 40));
  EXPECT_EQ(Json(Seconds(0.125)).dump(), "0.125");
  EXPECT_EQ(Json(Seconds(0.125)).get<Seconds>(), Seconds(0.125));
}

TEST(Units, TextForPeople) {
  EXPECT_EQ(to_string(Bytes(17)), "17 B");
  EXPECT_EQ(to_string(Bytes(0)), "0 B");
  EXPECT_EQ(to_string(Bytes(312 << 10)), "312 KiB");
  EXPECT_EQ(to_string(Bytes(3ll << 29)), "1.50 GiB");
  EXPECT_EQ(to_string(Bytes(-(3ll << 29))), "-1.50 GiB");
  EXPECT_EQ(to_string(Bytes(20ll << 40)), "20.0 TiB");
  EXPECT_EQ(to_string(Seconds(1.25)), "1.25 s");
  EXPECT_EQ(to_string(Seconds(861.9)), "862 s");
  EXPECT_EQ(to_string(Seconds(0.0031)), "3.10 ms");
  EXPECT_EQ(to_string(Seconds(42e-6)), "42 us");
}

}  // namespace
}  // namespace nereus
