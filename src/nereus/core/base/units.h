// Strong units. A Bytes is not a Seconds: mixing them up does not compile.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "nereus/core/base/json.h"

namespace nereus {

// A number with a unit. `Rep` is its representation; arithmetic keeps the unit, and the ratio of
// two equal units is a plain double.
template <class Tag, class Rep>
class Unit {
 public:
  constexpr Unit() = default;
  constexpr explicit Unit(Rep count) : count_(count) {}

  constexpr Rep count() const { return count_; }

  constexpr auto operator<=>(const Unit&) const = default;
  constexpr Unit operator+(Unit other) const { return Unit(count_ + other.count_); }
  constexpr Unit operator-(Unit other) const { return Unit(count_ - other.count_); }
  constexpr Unit operator*(double factor) const { return Unit(static_cast<Rep>(count_ * factor)); }
  constexpr Unit& operator+=(Unit other) { return *this = *this + other; }
  constexpr Unit& operator-=(Unit other) { return *this = *this - other; }
  constexpr double operator/(Unit other) const {
    return static_cast<double>(count_) / static_cast<double>(other.count_);
  }

  friend void to_json(Json& j, const Unit& u) { j = u.count_; }
  friend void from_json(const Json& j, Unit& u) { u.count_ = as<Rep>(j); }

 private:
  Rep count_{};
};

using Bytes = Unit<struct BytesTag, int64_t>;
using Seconds = Unit<struct SecondsTag, double>;

// "1.50 GiB", "312 KiB", "17 B".
std::string to_string(Bytes bytes);
// "1.25 s", "3.10 ms", "42 us".
std::string to_string(Seconds seconds);

}  // namespace nereus
