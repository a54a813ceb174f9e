#include "nereus/app/observe/run_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "nereus/app/observe/records.h"
#include "nereus/app/observe/summary.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"

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
  try {
    write_text(root_ / file, Json(plan).dump(2) + "\n");
  } catch (const Error& error) {
    log::warn(error.what());
  }
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

void RunDirectory::write_validation(int steps, const std::map<std::string, double>& metrics) {
  // Steps are counted from 0, here too: what follows the last one is told with it.
  write_event("validation", std::max(steps - 1, 0), {{"metrics", metrics}});
  if (tensorboard_) tensorboard_->write(steps, seconds_since_1970(), metrics);
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

namespace {

bool has_checkpoint(const fs::path& root) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "checkpoints", error)) {
    if (entry.path().filename().string().starts_with("step_") &&
        fs::is_regular_file(entry.path() / "manifest.json", error)) {
      return true;
    }
  }
  return false;
}

// Before it has its config.yaml, a run has these, and nothing in them.
bool is_of_a_beginning(const fs::directory_entry& entry) {
  const fs::path name = entry.path().filename();
  if (name == "lock" || name.extension() == ".partial") return true;
  if (name == "plans" || name == "tb") return entry.is_directory();
  if (name == "metrics.jsonl" || name == "events.jsonl") {
    return entry.is_regular_file() && entry.file_size() == 0;
  }
  return name == "trace.json" && !fs::exists(entry.path().parent_path() / "config.yaml");
}

[[noreturn]] void refuse_root(const fs::path& root, const std::string& why) {
  throw Error(ErrorCode::kInvalidInput, (root.empty() ? "\"\"" : root.string()) + " " + why +
                                            "; choose another --run-dir "
                                            "(trainer.default_local_dir)");
}

}  // namespace

bool holds_run(const fs::path& root) {
  std::error_code error;
  if (!fs::is_regular_file(root / "config.yaml", error)) return false;
  return has_checkpoint(root) || (fs::is_regular_file(root / "metrics.jsonl", error) &&
                                  fs::is_regular_file(root / "events.jsonl", error) &&
                                  fs::is_directory(root / "plans", error));
}

void verify_run_root(const fs::path& root) {
  struct stat status = {};
  if (::stat(root.c_str(), &status) != 0) {
    const std::error_code why(errno, std::generic_category());
    std::error_code error;
    if (why == std::errc::not_a_directory) refuse_root(root, "lies in something that is a file");
    if (fs::is_symlink(root, error)) refuse_root(root, "is a link to what is not there");
    if (why == std::errc::no_such_file_or_directory && !root.empty()) return;
    refuse_root(root, "cannot be a run directory: " + why.message());
  }
  if (!S_ISDIR(status.st_mode)) refuse_root(root, "is not a directory, and not a run of nereus");
  if (holds_run(root)) return;
  try {
    if (std::all_of(fs::directory_iterator(root), fs::directory_iterator(), is_of_a_beginning)) {
      return;
    }
  } catch (const fs::filesystem_error& failure) {
    refuse_root(root, "cannot be read: " + failure.code().message());
  }
  refuse_root(root, "holds something that is not a run of nereus (empty it yourself, if you will)");
}

fs::path move_contents_aside(const fs::path& root) {
  try {
    for (int number = 1;; ++number) {
      fs::path aside = root;
      aside += '.';
      aside += std::to_string(number);
      if (!fs::create_directory(aside)) continue;
      std::vector<fs::path> names;
      for (const auto& entry : fs::directory_iterator(root)) {
        if (entry.path().filename() != "lock") names.push_back(entry.path().filename());
      }
      // What makes it a run goes last: cut off, this leaves a run in its old place.
      std::ranges::stable_partition(names,
                                    [](const fs::path& name) { return name != "config.yaml"; });
      for (const fs::path& name : names) fs::rename(root / name, aside / name);
      return aside;
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kIo, "cannot move the earlier run in " + root.string() +
                                    " aside: " + error.code().message() +
                                    "; move it yourself, or choose another --run-dir");
  }
}

}  // namespace nereus
