// trace.json: steps, passes and transitions on a time line, for Perfetto or chrome://tracing.
#pragma once

#include <filesystem>
#include <string>

#include "nereus/app/observe/append_log.h"
#include "nereus/core/base/json.h"
#include "nereus/core/job/job.h"

namespace nereus {

// The file is complete JSON after every call, so a run that dies leaves a readable trace; opening
// an existing one goes on after it. Durations are measured. Starts within a step are laid end to
// end, since passes report how long they took and not when. Not thread-safe.
class TraceWriter {
 public:
  // Throws Error(kIo).
  explicit TraceWriter(const std::filesystem::path& file);
  // `end`: seconds since the run began, when the step (or transition) ended.
  void step(const StepReport& report, double end);
  void transition(int step, const TransitionDag& dag, const TransitionReport& report, double end);

 private:
  // Time line rows.
  enum class Row { kSteps = 1, kPasses = 2, kTransitions = 3 };
  void span(Row row, const std::string& name, double start, double duration, const Json& details);
  void append(const Json& event);

  AppendLog file_;
};

}  // namespace nereus
