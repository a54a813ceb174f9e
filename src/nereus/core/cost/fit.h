// Learning from tables: profiles of single operations, or rows of whole steps.
#pragma once

#include <span>

#include "nereus/core/cost/calibration.h"
#include "nereus/core/cost/operations.h"

namespace nereus {

// A measured time and the ideal work that it consists of.
struct MeasuredWork {
  Operations ideal;
  Seconds time;
};

struct Fit {
  Calibration calibration;
  int parameters = 0;    // classes that occur: one efficiency each
  double deviation = 0;  // of the log residuals, robust
};

// The efficiencies for which log Σ ideal / efficiency is closest to log time over all rows, robust
// to outliers (Huber) and drawn to those of `prior`, all scaled by one factor that suits the rows,
// as far as their deviations say: of classes that rows cannot tell apart it keeps the ratio. `tick`
// is the resolution of the clock: times of a few ticks count less. A class's variance is that of
// the rows it dominates and its own uncertainty. Throws Error(kInvalidInput) if a time is not
// positive and finite or a row has no work.
Fit fit(std::span<const MeasuredWork> rows, const Calibration& prior = {}, Seconds tick = {});

// Σ ideal / efficiency.
Seconds predicted_time(const Operations& ideal, const Calibration& calibration);

}  // namespace nereus
