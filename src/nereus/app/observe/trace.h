// trace.json: steps, passes and transitions on a time line, for Perfetto or chrome://tracing.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "nereus/app/observe/append_log.h"
#include "nereus/core/base/json.h"
#include "nereus/core/job/job.h"

namespace nereus {

// The file is complete JSON after every call, so a run that dies leaves a readable trace; opening
// an existing one goes on after it. Starts and durations are measured. A pass lies in the row of
// each device that it kept busy, work of the host in a row of its own. Not thread-safe.
class TraceWriter {
 public:
  // Throws Error(kIo).
  explicit TraceWriter(const std::filesystem::path& file);
  // `end`: seconds since the run began, when the step (or transition) ended.
  void step(const StepReport& report, double end);
  void transition(int step, const TransitionDag& dag, const TransitionReport& report, double end);

 private:
  // Time line rows.
  enum class Row { kSteps = 1, kHost = 2, kTransitions = 3, kFirstDevice = 4 };
  Row row_of(DeviceId device);
  void name_row(Row row, const std::string& name);
  void span(Row row, const std::string& name, double start, double duration, const Json& details);
  void append(const Json& event);

  AppendLog file_;
  std::map<DeviceId, Row> rows_;
};

}  // namespace nereus
