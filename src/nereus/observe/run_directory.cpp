#include "nereus/observe/run_directory.h"

#include <algorithm>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/base/log.h"
#include "nereus/base/text.h"
#include "nereus/data/files.h"
#include "nereus/observe/records.h"
#include "nereus/observe/summary.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Drops every line about step `first_step` or later, and those that no run writes: what they say
// must not end a run that goes on.
void forget_later_steps(const fs::path& file, RecordKind kind, int first_step) {
  std::string kept;
  const Records records = read_records(file, kind);
  for (const std::string& problem : records.problems) log::warn("left out: " + problem);
  for (const Json& line : records.lines) {
    if (step_in(line) < first_step) kept += to_line(line) + "\n";
  }
  write_text(file, kept);
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

RunDirectory::RunDirectory(fs::path root, int first_step, bool tensorboard)
    : root_(std::move(root)), opened_(std::chrono::steady_clock::now()) {
  fs::create_directories(root_ / "plans");
  forget_later_steps(root_ / "metrics.jsonl", RecordKind::kMetrics, first_step);
  forget_later_steps(root_ / "events.jsonl", RecordKind::kEvents, first_step);
  metrics_.emplace(root_ / "metrics.jsonl");
  events_.emplace(root_ / "events.jsonl");
  const Records earlier = read_records(root_ / "metrics.jsonl", RecordKind::kMetrics);
  if (!earlier.lines.empty()) earlier_s_ = number_in(earlier.lines.back(), "wall_s");
  while (fs::exists(root_ / plan_file(plans_))) ++plans_;
  trace_.emplace(root_ / "trace.json");
  // TensorBoard counts steps from 1.
  if (tensorboard) {
    tensorboard_.emplace(root_ / "tb", seconds_since_1970(), first_step > 0 ? first_step + 1 : 0);
  }
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
  metrics_->append(to_line(line) + "\n");
  trace_->step(report, wall_s());
  if (tensorboard_) tensorboard_->write(report.step + 1, seconds_since_1970(), report.metrics);
}

void RunDirectory::write_validation(const std::map<std::string, double>& metrics) {
  write_event("validation", 0, {{"metrics", metrics}});
  if (tensorboard_) tensorboard_->write(0, seconds_since_1970(), metrics);
}

void RunDirectory::write_decision(const Decision& decision) {
  events_->append(to_line(decision) + "\n");
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
  // A failed one leads nowhere: what was made of its remains is told by the plan that follows.
  write_event("transition", step,
              {{"from", dag.from},
               {"to", report.failure ? Json() : Json(to)},
               {"failure", report.failure ? Json(report.failure->reason) : Json()},
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
  events_->append(to_line(details) + "\n");
}

Json RunDirectory::write_summary() {
  metrics_->flush();
  events_->flush();
  const Records metrics = read_records(root_ / "metrics.jsonl", RecordKind::kMetrics);
  const Records events = read_records(root_ / "events.jsonl", RecordKind::kEvents);
  for (const Records* records : {&metrics, &events}) {
    for (const std::string& problem : records->problems) {
      log::warn("left out of summary.json: " + problem);
    }
  }
  const Json summary = summarize(metrics.lines, events.lines);
  write_text(root_ / "summary.json", summary.dump(2) + "\n");
  return summary;
}

bool holds_run(const fs::path& root) { return fs::exists(root / "config.yaml"); }

void verify_run_root(const fs::path& root) {
  if (!fs::exists(root) || holds_run(root)) return;
  if (fs::is_directory(root)) {
    const auto is_foreign = [](const fs::directory_entry& entry) {
      return entry.path().filename() != "lock";  // of a run that did not begin
    };
    if (std::none_of(fs::directory_iterator(root), fs::directory_iterator(), is_foreign)) return;
  }
  throw Error(ErrorCode::kInvalidInput,
              root.string() +
                  " holds something that is not a run of nereus; choose another --run-dir "
                  "(trainer.default_local_dir), or empty it yourself");
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
