// What a search may choose of one model-stage on one side of the line, and bounds on what it costs.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "nereus/core/planner/problem.h"

namespace nereus {

// In the order of Problem::stages().
inline constexpr size_t kTraining = 0;
inline constexpr size_t kGeneration = 1;
inline constexpr Seconds kNever(std::numeric_limits<double>::infinity());

// A placement that may be part of a plan that fits.
struct Option {
  int placement = 0;
  int first_variant = 0;       // faster ones never fit
  Seconds time;                // of the first variant
  int end_rank = -1;           // of the device at the placement's end of the line; -1: not in use
  Bytes at_end;                // resident there
  int devices = 0;             // from the end of the line to the last in use
  std::vector<Seconds> least;  // by pass: the fastest of all variants that may fit
};

// The options of a stage on one side of the line, by time.
struct SideOptions {
  std::vector<Option> options;
  bool anchored = true;  // every option is on the device at its end of the line
  // By devices: the least passes of the options that take no more.
  std::vector<std::pair<int, std::vector<Seconds>>> least;

  // Of options that take at most so many devices; nullptr: there are none.
  const std::vector<Seconds>* least_within(int devices) const {
    const auto beyond =
        std::ranges::upper_bound(least, devices, {}, [](const auto& entry) { return entry.first; });
    return beyond == least.begin() ? nullptr : &std::prev(beyond)->second;
  }
};

// What a stage holds at least on the device at its end of the line. Weights that generation shares
// with training cost nothing.
Bytes least_at_end(const Problem& problem, size_t stage);

// Those that may fit if other stages hold at least `others` at the end of the line.
SideOptions side_options(const Problem& problem, size_t stage, Side side, Bytes others,
                         Bytes usable);

// The fastest variant from the option's first whose transient bytes fit at the end of the line, or
// -1.
int fastest(const Placement& placement, const Option& option, Bytes slack);

// Least time of stages that run one after the other, given the bytes they may hold in all.
class Completion {
 public:
  // No stages.
  Completion() : steps_{{Bytes(), Seconds()}} {}

  // With one stage more. `bytes_of` says what an option holds at least.
  template <class BytesOf>
  Completion with(const std::vector<Option>& options, BytesOf bytes_of) const {
    std::vector<Step> stage;
    for (const Option& option : options) stage.push_back({bytes_of(option), option.time});
    stage = frontier(std::move(stage));
    Completion sum;
    sum.steps_.clear();
    for (const Step& a : stage) {
      for (const Step& b : steps_) sum.steps_.push_back({a.bytes + b.bytes, a.time + b.time});
    }
    sum.steps_ = frontier(std::move(sum.steps_));
    return sum;
  }

  Bytes least_bytes() const { return steps_.empty() ? Bytes() : steps_.front().bytes; }
  Seconds least_time() const { return steps_.empty() ? kNever : steps_.back().time; }
  Seconds least_time(Bytes usable) const {
    const auto beyond = std::ranges::upper_bound(steps_, usable, {}, &Step::bytes);
    return beyond == steps_.begin() ? kNever : std::prev(beyond)->time;
  }

 private:
  struct Step {
    Bytes bytes;
    Seconds time;
  };
  // By bytes, each faster than those before.
  static std::vector<Step> frontier(std::vector<Step> steps) {
    std::ranges::sort(steps, [](const Step& a, const Step& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.time < b.time;
    });
    std::vector<Step> kept;
    for (const Step& step : steps) {
      if (kept.empty() || step.time < kept.back().time) kept.push_back(step);
    }
    return kept;
  }

  std::vector<Step> steps_;
};

}  // namespace nereus
