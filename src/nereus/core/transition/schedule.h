// When each primitive of a transition runs: resource-constrained project scheduling, with memory.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "nereus/core/base/json.h"
#include "nereus/core/base/units.h"

namespace nereus {

// What a task does to one device that it occupies.
struct DeviceUse {
  int device = 0;
  Bytes rise;          // most that usage grows by while the task runs
  Bytes chunked_rise;  // the same, layer by layer
  Bytes net;           // growth that stays when it has ended; may be negative
};

// What a task takes of one host's way out: a NIC of several lanes carries several tasks at once.
struct NicUse {
  int host = 0;
  int lanes = 1;
};

// A task occupies its devices alone, and its lanes, from start to end.
struct Task {
  Seconds duration;
  int priority = 0;  // smaller first
  std::vector<DeviceUse> uses;
  std::vector<NicUse> nics;
  std::vector<int> needs;  // tasks that must have ended
};

struct ScheduleProblem {
  std::vector<Task> tasks;  // needs point to earlier tasks
  std::vector<Bytes> used;  // by device: before the first task
  std::vector<Bytes> capacity;
  std::vector<int> lanes;  // by host
};

struct Schedule {
  std::vector<int> order;  // of tasks, by start; a topological order of needs and waits
  std::vector<Seconds> start;
  std::vector<bool> chunked;
  std::vector<std::pair<int, int>> waits;  // (release, acquisition): needs that memory adds
  // By device: upper bound of usage over every execution in which needs and waits hold.
  std::vector<Bytes> peak;
  Seconds makespan;
};

// No task can start any more: the one of highest priority lacks memory on a device.
struct Stuck {
  std::vector<int> tasks;  // all that were ready but did not fit
  int device = 0;          // where the first of them lacks memory
  Bytes needed;
  Bytes free;
};

// Parallel list scheduling: at each moment, whatever is ready, fits and finds its devices and NICs
// idle starts, smaller priority first. Whatever was started may in truth run early or late as long
// as needs and waits hold, so a task counts on an earlier release only if it waits for it; it waits
// only for releases without which it would not fit, and which ended before it starts: so waits
// never close a cycle. Deterministic. Time: O(n log n) for a bounded number of tasks per device.
std::variant<Schedule, Stuck> schedule(const ScheduleProblem& problem);

// The same problem with other priorities: tasks of priority 0 first, and then by the time that must
// pass, by needs alone, from the start of a task to the end of all: longest first.
ScheduleProblem longest_tail_first(ScheduleProblem problem);

void to_json(Json& j, const ScheduleProblem& problem);  // for oracles in tests and benches

}  // namespace nereus
