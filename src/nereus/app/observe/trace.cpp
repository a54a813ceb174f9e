#include "nereus/app/observe/trace.h"

namespace nereus {

namespace {

constexpr double kMicro = 1e6;
constexpr const char* kEnd = "\n]\n";

}  // namespace

TraceWriter::TraceWriter(const std::filesystem::path& file) : file_(file, kEnd) {
  if (!file_.empty()) return;
  name_row(Row::kSteps, "steps");
  name_row(Row::kHost, "host");
  name_row(Row::kTransitions, "transitions");
}

void TraceWriter::step(const StepReport& report, double end) {
  const auto testing = report.metrics.find("timing_s/testing");
  if (testing != report.metrics.end()) {  // follows the step
    end -= testing->second;
    span(Row::kSteps, "testing", end, testing->second, Json::object());
  }
  const double at = end - report.step_s.count();
  span(Row::kSteps, "step " + std::to_string(report.step), at, report.step_s.count(),
       {{"response_tokens", report.response_tokens}});
  for (const Span& node : report.spans) {
    Json by_class = Json::object();
    for (const auto& [op_class, time] : node.by_class) by_class[to_string(op_class)] = time;
    std::vector<Row> rows;
    for (const DeviceId device : node.devices) rows.push_back(row_of(device));
    if (rows.empty()) rows.push_back(Row::kHost);
    for (const Row row : rows) {
      span(row, node.name, at + node.start.count(), node.took().count(), by_class);
    }
  }
}

void TraceWriter::transition(int step, const TransitionDag& dag, const TransitionReport& report,
                             double end) {
  const double begin = end - report.measured.count();
  span(Row::kTransitions, "transition after step " + std::to_string(step), begin,
       report.measured.count(), {{"moved_bytes", report.moved}, {"verified", report.verified}});
  for (const PrimitiveReport& measured : report.primitives) {
    const Primitive& primitive = dag.primitives.at(static_cast<size_t>(measured.id));
    span(Row::kTransitions, to_string(primitive, dag.units), begin + measured.start.count(),
         measured.measured.count(),
         {{"moved_bytes", measured.moved}, {"predicted_s", primitive.predicted}});
  }
}

TraceWriter::Row TraceWriter::row_of(DeviceId device) {
  const auto next = static_cast<Row>(static_cast<int>(Row::kFirstDevice) + rows_.size());
  const auto [row, is_new] = rows_.emplace(device, next);
  if (is_new) name_row(row->second, "device " + to_string(device));
  return row->second;
}

void TraceWriter::name_row(Row row, const std::string& name) {
  append({{"ph", "M"},
          {"name", "thread_name"},
          {"pid", 0},
          {"tid", static_cast<int>(row)},
          {"args", {{"name", name}}}});
}

void TraceWriter::span(Row row, const std::string& name, double start, double duration,
                       const Json& details) {
  append({{"ph", "X"},
          {"name", name},
          {"pid", 0},
          {"tid", static_cast<int>(row)},
          {"ts", start * kMicro},
          {"dur", duration * kMicro},
          {"args", details}});
}

void TraceWriter::append(const Json& event) {
  file_.append((file_.empty() ? "[\n" : ",\n") + event.dump());
}

}  // namespace nereus
