#include "nereus/core/base/units.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "nereus/core/base/text.h"

namespace nereus {

namespace {

// Three significant digits for values from 1 to 1000.
std::string short_number(double value) {
  const double size = std::abs(value);
  return format_number(value, size < 10 ? "%.2f" : size < 100 ? "%.1f" : "%.0f");
}

}  // namespace

std::string to_string(Bytes bytes) {
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes.count());
  if (std::abs(value) < 1024) return std::to_string(bytes.count()) + " B";
  size_t name = 0;
  for (value /= 1024; std::abs(value) >= 1024 && name + 1 < kNames.size(); value /= 1024) ++name;
  return short_number(value) + " " + kNames[name];
}

std::string to_string(Seconds seconds) {
  const double value = seconds.count();
  if (value == 0 || std::abs(value) >= 1) return short_number(value) + " s";
  if (std::abs(value) >= 1e-3) return short_number(value * 1e3) + " ms";
  return format_number(value * 1e6, "%.0f") + " us";
}

}  // namespace nereus
