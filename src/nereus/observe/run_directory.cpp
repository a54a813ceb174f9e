#include "nereus/observe/run_directory.h"

#include <sstream>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/base/text.h"
#include "nereus/data/files.h"
#include "nereus/observe/summary.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Opens for appending after dropping every line about step `first_step` or later.
std::ofstream reopen(const fs::path& file, int first_step) {
  std::string kept;
  for (const Json& line : read_json_lines(file)) {
    if (line.value("step", 0) < first_step) kept += line.dump() + "\n";
  }
  write_text(file, kept);
  std::ofstream out(file, std::ios::app | std::ios::binary);
  if (!out) throw Error(ErrorCode::kIo, "cannot write " + file.string());
  return out;
}

fs::path plan_file(int number) { return fs::path("plans") / format_number(number, "%03.0f.json"); }

Json primitive_event(const Primitive& primitive, std::span<const Emu> units,
                     const PrimitiveReport* measured) {
  Json event = primitive_json(primitive, units);
  event["text"] = to_string(primitive, units);
  if (measured != nullptr) {
    event["measured_s"] = measured->measured;
    event["bytes_moved"] = measured->moved;
  }
  return event;
}

}  // namespace

std::vector<Json> read_json_lines(const fs::path& file) {
  std::vector<Json> lines;
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    Json value = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (value.is_object()) lines.push_back(std::move(value));
  }
  return lines;
}

RunDirectory::RunDirectory(fs::path root, int first_step, bool tensorboard)
    : root_(std::move(root)), opened_(std::chrono::steady_clock::now()) {
  fs::create_directories(root_ / "plans");
  metrics_ = reopen(root_ / "metrics.jsonl", first_step);
  events_ = reopen(root_ / "events.jsonl", first_step);
  const std::vector<Json> earlier = read_json_lines(root_ / "metrics.jsonl");
  if (!earlier.empty()) earlier_s_ = earlier.back().value("wall_s", 0.0);
  while (fs::exists(root_ / plan_file(plans_))) ++plans_;
  trace_.emplace(root_ / "trace.json");
  if (tensorboard) tensorboard_.emplace(root_ / "tb", seconds_since_1970(), first_step);
}

double RunDirectory::wall_s() const {
  return earlier_s_ +
         std::chrono::duration<double>(std::chrono::steady_clock::now() - opened_).count();
}

void RunDirectory::write_config(const std::string& yaml) {
  write_text(root_ / "config.yaml", yaml);
}

void RunDirectory::write_plan(int step, const Plan& plan) {
  const fs::path file = plan_file(plans_++);
  write_text(root_ / file, Json(plan).dump(2) + "\n");
  write_event("plan", step, {{"file", file.string()}, {"text", to_string(plan)}});
}

void RunDirectory::write_step(const StepReport& report) {
  Json line = report.metrics;
  line["step"] = report.step;
  line["response_tokens"] = report.response_tokens;
  line["wall_s"] = wall_s();
  for (const auto& [device, bytes] : report.peak_bytes) {
    line["peak_bytes"][to_string(device)] = bytes;
  }
  metrics_ << line.dump() << std::endl;
  trace_->step(report, wall_s());
  if (tensorboard_) tensorboard_->write(report.step + 1, seconds_since_1970(), report.metrics);
}

void RunDirectory::write_decision(const Decision& decision) {
  events_ << Json(decision).dump() << std::endl;
}

void RunDirectory::write_transition(int step, const TransitionDag& dag, const Plan& to,
                                    const TransitionReport& report) {
  Json primitives = Json::array();
  for (const Primitive& primitive : dag.primitives) {
    const PrimitiveReport* measured = nullptr;
    for (const PrimitiveReport& candidate : report.primitives) {
      if (candidate.id == primitive.id) measured = &candidate;
    }
    primitives.push_back(primitive_event(primitive, dag.units, measured));
  }
  write_event("transition", step,
              {{"from", dag.from},
               {"to", to},
               {"primitives", primitives},
               {"edges", dag.edges},
               {"predicted_s", dag.makespan},
               {"measured_s", report.measured},
               {"exposed_s", report.exposed},
               {"verification_s", report.verification},
               {"settling_s", report.settling},
               {"moved_bytes", report.moved},
               {"verified", report.verified}});
  trace_->transition(step, dag, report, wall_s());
}

void RunDirectory::write_event(const std::string& type, int step, Json details) {
  details["type"] = type;
  details["step"] = step;
  events_ << details.dump() << std::endl;
}

Json RunDirectory::write_summary() {
  const Json summary =
      summarize(read_json_lines(root_ / "metrics.jsonl"), read_json_lines(root_ / "events.jsonl"));
  write_text(root_ / "summary.json", summary.dump(2) + "\n");
  return summary;
}

fs::path move_aside(const fs::path& path) {
  for (int number = 1;; ++number) {
    fs::path aside = path;
    aside += '.';
    aside += std::to_string(number);
    if (fs::exists(aside)) continue;
    fs::rename(path, aside);
    return aside;
  }
}

}  // namespace nereus
