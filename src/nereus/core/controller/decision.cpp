#include "nereus/core/controller/decision.h"

namespace nereus {

std::string to_string(Trigger trigger) {
  switch (trigger) {
    case Trigger::kNone:
      return "none";
    case Trigger::kPoolChange:
      return "pool_change";
    case Trigger::kMemory:
      return "memory";
    case Trigger::kDrift:
      return "drift";
    case Trigger::kFault:
      return "fault";
  }
  throw Error(ErrorCode::kInternal, "unknown trigger");
}

std::string to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNone:
      return "none";
    case Verdict::kKept:
      return "kept";
    case Verdict::kRejected:
      return "rejected";
    case Verdict::kAdmitted:
      return "admitted";
    case Verdict::kStranded:
      return "stranded";
  }
  throw Error(ErrorCode::kInternal, "unknown verdict");
}

void to_json(Json& j, const Forecast& forecast) {
  j = {{"step_s", forecast.step.expected},
       {"step_s_low", forecast.step.low},
       {"step_s_high", forecast.step.high},
       {"peak_bytes", Json::object()}};
  for (const auto& [device, bytes] : forecast.peak) j["peak_bytes"][to_string(device)] = bytes;
}

void to_json(Json& j, const Decision& decision) {
  j = {{"type", "decision"},
       {"step", decision.step},
       {"trigger", to_string(decision.trigger)},
       {"trigger_detail", decision.trigger_detail},
       {"signals", decision.signals},
       {"urgent", decision.urgent},
       {"current_step_s", decision.current_step},
       {"best_step_s", decision.best_step},
       {"best", decision.best ? Json(*decision.best) : Json()},
       {"transition_s", decision.transition_s},
       {"overlapped", decision.overlapped},
       {"hidden_s", decision.hidden_s},
       {"gain_s", decision.gain_s},
       {"horizon", decision.horizon},
       {"gamma", decision.gamma},
       {"verdict", to_string(decision.verdict)},
       {"reason", decision.reason},
       {"next", decision.next ? Json(*decision.next) : Json()}};
}

}  // namespace nereus
