// The signals that a replan may answer, their reference values and how long they last.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/core/job/job.h"

namespace nereus {

struct MonitorOptions {
  double length_threshold = 0.3;      // relative drift of the response length
  double efficiency_threshold = 0.3;  // relative drift of step time at equal work
  double horizon_smoothing = 0.5;     // weight of the newest interval in the moving average
};

// Expected steps until a signal's next crossing: a moving average of past intervals, updated at
// crossings only; 1 before the first, whose interval counts from `start` (-1: unknown, not
// counted).
class Horizon {
 public:
  explicit Horizon(double smoothing = 0.5, int start = -1)
      : smoothing_(smoothing), last_crossing_(start) {}
  void cross(int step);
  double expected() const { return expected_; }
  Json save() const;
  void restore(const Json& saved);

 private:
  double smoothing_ = 0.5;
  double expected_ = 1;
  int last_crossing_ = -1;
};

// Drift triggers: a signal differs from its reference by more than its threshold, relative to the
// reference. References are reset at every replan, admitted or not, so a lasting deviation fires
// once.
class Monitor {
 public:
  explicit Monitor(MonitorOptions options) : options_(options) {}

  struct Crossing {
    std::string signal;  // "response_length", "efficiency", "pool", "memory"
    double reference = 0;
    double value = 0;
    double threshold = 0;
  };
  // The signals beyond their threshold at this step ("response_length" and "efficiency" have one);
  // a signal without a reference only gets one.
  std::vector<Crossing> check(int step, const std::map<std::string, double>& signals);
  // An event (pool change, memory) that has no threshold, counted for its horizon.
  void event(int step, const std::string& signal);
  // Every reference := its value.
  void reset(const std::map<std::string, double>& signals);
  // The signal's next value becomes its reference: a new plan has another efficiency.
  void forget(const std::string& signal);
  // The smallest H of the signals named; 1 if none is named.
  double horizon(const std::vector<std::string>& signals) const;

  Json save() const;
  void restore(const Json& saved);

 private:
  double threshold(const std::string& signal) const;
  Horizon& horizon_of(const std::string& signal);

  MonitorOptions options_;
  int started_ = -1;  // the step of the first check
  std::map<std::string, double> references_;
  std::map<std::string, Horizon> horizons_;
};

}  // namespace nereus
