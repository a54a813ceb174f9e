#include "nereus/app/observe/trace.h"

namespace nereus {

namespace {

constexpr double kMicro = 1e6;
constexpr const char* kEnd = "\n]\n";

}  // namespace

TraceWriter::TraceWriter(const std::filesystem::path& file) : file_(file, kEnd) {
  if (!file_.empty()) return;
  for (const auto& [row, name] :
       {std::pair{Row::kSteps, "steps"}, std::pair{Row::kPasses, "passes"},
        std::pair{Row::kTransitions, "transitions"}}) {
    append({{"ph", "M"},
            {"name", "thread_name"},
            {"pid", 0},
            {"tid", static_cast<int>(row)},
            {"args", {{"name", name}}}});
  }
}

void TraceWriter::step(const StepReport& report, double end) {
  const auto testing = report.metrics.find("timing_s/testing");
  if (testing != report.metrics.end()) {  // follows the step
    end -= testing->second;
    span(Row::kPasses, "testing", end, testing->second, Json::object());
  }
  double at = end - report.step_s.count();
  span(Row::kSteps, "step " + std::to_string(report.step), at, report.step_s.count(),
       {{"response_tokens", report.response_tokens}});
  for (const NodeTiming& node : report.nodes) {
    Json by_class = Json::object();
    for (const auto& [op_class, time] : node.by_class) by_class[to_string(op_class)] = time;
    span(Row::kPasses, node.name, at, node.total.count(), by_class);
    at += node.total.count();
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
