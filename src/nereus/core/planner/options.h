// What a search may choose of one model-stage wherever it lies, and bounds on what it costs there.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "nereus/core/planner/ranking.h"

namespace nereus {

// A placement that may be part of a plan that fits.
struct Option {
  // A way to run it in some setting.
  struct Way {
    Seconds time;
    Bytes transient;  // at least, on a device that it shares
  };
  int placement = 0;
  int devices = 0;        // that it takes
  int span = 0;           // from the first to the last of them, at most
  Bytes held;             // resident, at least, on a device that it shares with others in pairs
  Ranking::Tie tie;       // at least
  std::vector<Way> ways;  // by time; of those that may fit, those that need less than all before
  std::vector<Seconds> times;  // least() of all ways, one after the other

  bool has_gaps() const { return span > devices; }
  // By pass: the fastest of a way and of all slower ones.
  PassTimes least(size_t way) const {
    const size_t passes = times.size() / ways.size();
    return PassTimes(times).subspan(way * passes, passes);
  }
  // The fastest way that needs no more on a shared device, or -1.
  int fastest(Bytes slack) const;
};

// The options of a stage that take equally many devices, by time.
struct OptionGroup {
  int devices = 0;
  std::vector<Option> options;
  std::vector<Seconds> least;   // by pass: the fastest of all
  std::vector<Seconds> within;  // and of those that take fewer devices
};

// All options of a stage, by devices. Where all begin at the front, and so nobody has to leave
// devices to others, they are one group.
struct StageOptions {
  std::vector<OptionGroup> groups;
  Ranking::Tie tie;  // at least

  // The least passes on at most so many devices; empty: there are none.
  PassTimes least_within(int devices) const {
    const auto beyond = std::ranges::upper_bound(groups, devices, {}, &OptionGroup::devices);
    return beyond == groups.begin() ? PassTimes() : std::prev(beyond)->within;
  }
  int fewest_devices() const { return groups.empty() ? 0 : groups.front().devices; }
};

// Of all stages, those that may fit. If all begin at the front, the device there is one that they
// share; else model-stages that share in pairs share some device all together, if their groups
// leave nothing out, and hold there what a rank holds at least.
std::vector<StageOptions> stage_options(const Problem& problem, Bytes usable);

// Least time of stages that run one after the other, given the bytes they may hold in all.
class Completion {
 public:
  // No stages.
  Completion() : steps_{{Bytes(), Seconds()}} {}

  // With one stage more. `bytes_of` says what an option holds at least.
  template <class BytesOf>
  Completion with(const StageOptions& options, BytesOf bytes_of) const {
    std::vector<Step> stage;
    for (const OptionGroup& group : options.groups) {
      for (const Option& option : group.options) {
        stage.push_back({bytes_of(option), option.ways.front().time});
      }
    }
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
