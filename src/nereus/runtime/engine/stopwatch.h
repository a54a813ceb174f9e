// Wall time since construction.
#pragma once

#include <chrono>

#include "nereus/core/base/units.h"

namespace nereus {

class Stopwatch final {
 public:
  Seconds elapsed() const {
    return Seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace nereus
