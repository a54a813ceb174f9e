// What a person sees while a run goes on: one live line on a terminal, a line per step elsewhere.
#pragma once

#include <map>
#include <ostream>
#include <string>

#include "nereus/core/job/job.h"

namespace nereus {

// Not thread-safe. With live true, the step line is drawn over itself; messages scroll above it.
class ProgressLine {
 public:
  ProgressLine(std::ostream& out, int total_steps, bool live);
  // To stdout; live if that is a terminal.
  static ProgressLine to_terminal(int total_steps);

  void step(const StepReport& report, const Plan& plan);
  void message(const std::string& text);
  // Ends the live line.
  void finish();

 private:
  std::string describe(const StepReport& report, const Plan& plan);

  std::ostream& out_;
  int total_steps_;
  bool live_;
  std::string line_;
  double step_s_ = 0;  // moving average, for the time left
};

// "validation: reward 0.310 of gsm8k, 0.250 of math, length 41": what the metrics of a step say of
// the validation that followed it; "" if none did.
std::string validation_text(const std::map<std::string, double>& metrics);

// "4 devices, train tp1·pp1·dp4, gen tp1·pp1·dp4": the actor's part of a plan.
std::string short_plan(const Plan& plan);

}  // namespace nereus
