#include "nereus/core/job/job.h"

namespace nereus {

void to_json(Json& j, const TransitionFailure& failure) {
  j = Json{{"reason", failure.reason}, {"lost_devices", failure.lost}};
}

void to_json(Json& j, const TransitionReport& report) {
  Json primitives = Json::array();
  for (const PrimitiveReport& p : report.primitives) {
    primitives.push_back({{"id", p.id},
                          {"start_s", p.start},
                          {"measured_s", p.measured},
                          {"moved_bytes", p.moved},
                          {"resident_bytes", p.resident}});
  }
  Json peak = Json::object();
  for (const auto& [device, bytes] : report.peak_bytes) peak[to_string(device)] = bytes;
  j = Json{{"primitives", std::move(primitives)},   {"measured_s", report.measured},
           {"verification_s", report.verification}, {"settling_s", report.settling},
           {"moved_bytes", report.moved},           {"resident_bytes", report.resident},
           {"verified", report.verified},           {"peak_bytes", std::move(peak)}};
  if (report.failure) j["failure"] = *report.failure;
}

void to_json(Json& j, const NodeTiming& timing) {
  Json by_class = Json::object();
  for (const auto& [op_class, time] : timing.by_class) by_class[to_string(op_class)] = time;
  j = Json{{"name", timing.name}, {"total_s", timing.total}, {"by_class_s", std::move(by_class)}};
}

}  // namespace nereus
