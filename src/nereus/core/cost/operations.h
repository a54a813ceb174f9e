// Ideal seconds (at peak rates) of a piece of work, by operation.
#pragma once

#include <array>
#include <map>

#include "nereus/core/base/units.h"
#include "nereus/core/cost/op_class.h"

namespace nereus {

class Operations {
 public:
  Operations() = default;
  // So many ideal seconds of one operation.
  Operations(OpClass operation, double seconds) { (*this)[operation] = seconds; }

  double& operator[](OpClass operation) { return seconds_[static_cast<size_t>(operation)]; }
  double operator[](OpClass operation) const { return seconds_[static_cast<size_t>(operation)]; }
  double sum() const {
    double all = 0;
    for (double each : seconds_) all += each;
    return all;
  }
  Operations& operator+=(const Operations& other) {
    for (size_t i = 0; i < seconds_.size(); ++i) seconds_[i] += other.seconds_[i];
    return *this;
  }
  Operations& operator*=(double factor) {
    for (double& each : seconds_) each *= factor;
    return *this;
  }
  friend Operations operator+(Operations a, const Operations& b) { return a += b; }
  friend Operations operator*(Operations a, double factor) { return a *= factor; }

 private:
  std::array<double, kAllOpClasses.size()> seconds_ = {};
};

// By what a worker's clock tells apart.
using Work = std::map<OpClass, Operations>;
using ClassTimes = std::map<OpClass, Seconds>;

// Each class's operations added up.
ClassTimes class_times(const Work& work);

}  // namespace nereus
