#include "nereus/core/job/job.h"

#include "nereus/core/base/error.h"

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

void verify_spans(const std::vector<Span>& spans, const Workflow& workflow) {
  NEREUS_CHECK(spans.size() == workflow.nodes.size(), std::to_string(spans.size()) + " spans of " +
                                                          std::to_string(workflow.nodes.size()) +
                                                          " nodes");
  for (const NodeId node : node_ids(workflow)) {
    const Span& span = spans[index(node)];
    NEREUS_CHECK(span.node == node && span.name == workflow.at(node).name,
                 "the span of " + workflow.at(node).name + " is that of " + span.name);
    NEREUS_CHECK(span.start <= span.end, span.name + " ends before it starts");
  }
}

void to_json(Json& j, const Span& span) {
  Json by_class = Json::object();
  for (const auto& [op_class, time] : span.by_class) by_class[to_string(op_class)] = time;
  j = Json{{"step", span.step}, {"name", span.name},       {"start_s", span.start},
           {"end_s", span.end}, {"devices", span.devices}, {"by_class_s", std::move(by_class)}};
}

}  // namespace nereus
