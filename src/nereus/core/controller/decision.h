// What the controller saw, considered, chose and why, with every number in the inequality.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nereus/core/cost/step_latency.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {

// kFault: a transition failed half-way.
enum class Trigger { kNone, kPoolChange, kMemory, kDrift, kFault };
// kNone: no trigger fired. kKept: replanned, nothing better. kRejected: better, but not worth it or
// not feasible. kAdmitted: the transition runs. kStranded: no plan fits the devices that are left.
enum class Verdict { kNone, kKept, kRejected, kAdmitted, kStranded };

// What the step that follows should take.
struct Forecast {
  TimeEstimate step;
  std::map<DeviceId, Bytes> peak;
};

struct Decision {
  int step = 0;
  Trigger trigger = Trigger::kNone;
  std::string trigger_detail;             // "response length 32 → 46 (+44 %, threshold 30 %)"
  std::map<std::string, double> signals;  // monitored values
  bool urgent = false;
  Seconds current_step;  // predicted, plan in force, next workload
  Seconds best_step;     // predicted, plan considered
  std::optional<Plan> best;
  Seconds transition_s;     // predicted: how long the job will wait for it
  bool overlapped = false;  // it runs beside the next step's generation,
  Seconds hidden_s;         // which hides this much of it
  Seconds gain_s;           // current_step - best_step
  double horizon = 0;       // H: expected steps until the signal's next crossing
  double gamma = 0;
  Verdict verdict = Verdict::kNone;
  std::string reason;                       // a sentence with the numbers
  std::optional<TransitionDag> transition;  // set iff admitted
  // Under the plan in force after the transition; none if no step follows, or one beside which a
  // transition runs.
  std::optional<Forecast> next;
};

std::string to_string(Trigger trigger);
std::string to_string(Verdict verdict);
// {"step_s", "step_s_low", "step_s_high", "peak_bytes": {device: bytes}}
void to_json(Json& j, const Forecast& forecast);
// DESIGN's keys: {"type": "decision", "step", "trigger", "signals", "current_step_s", "best", …}.
void to_json(Json& j, const Decision& decision);

}  // namespace nereus
