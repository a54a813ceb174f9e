// One efficiency per operation class, learned from measured steps in log space.
#pragma once

#include <map>

#include "nereus/core/base/json.h"
#include "nereus/core/base/units.h"
#include "nereus/core/cost/op_class.h"

namespace nereus {

// time = ideal / efficiency. Classes never seen start conservative (see default_efficiency) and are
// marked as such. The first observation replaces the default; a later one counts as at most a
// factor of 4 away, and a mean over recent observations forgets old ones.
class Calibration {
 public:
  struct Entry {
    double log_efficiency = 0;
    double variance = 0;  // of the log residuals
    int observations = 0;
    bool operator==(const Entry&) const = default;
  };

  // An unseen collective is as far below its default as the worst one seen.
  double efficiency(OpClass op_class) const;
  bool seen(OpClass op_class) const;
  // Standard deviation of the log residual: the interval of a prediction.
  double log_deviation(OpClass op_class) const;
  // Ignores non-finite or non-positive times.
  void observe(OpClass op_class, Seconds ideal, Seconds measured);

  // What a fit to a table found (fit.h).
  void set(OpClass op_class, const Entry& entry) { entries_[op_class] = entry; }

  // Measured / predicted transient peak of memory: jumps up to the largest ratio seen, fades slowly
  // towards smaller ones, stays within [0.5, 4]; 1 before the first observation.
  double memory_factor() const { return memory_factor_; }
  void observe_memory(Bytes predicted_transient, Bytes measured_transient);

  // What a transition makes the job wait for besides moving state (TransitionReport::settling): a
  // moving average; 0 before the first.
  Seconds settling() const { return settling_; }
  void observe_settling(Seconds measured);

  bool operator==(const Calibration&) const = default;

 private:
  friend void to_json(Json& j, const Calibration& calibration);
  friend void from_json(const Json& j, Calibration& calibration);
  std::map<OpClass, Entry> entries_;
  double memory_factor_ = 1;
  Seconds settling_;
};

double default_efficiency(OpClass op_class);
void to_json(Json& j, const Calibration& calibration);
void from_json(const Json& j, Calibration& calibration);

}  // namespace nereus
