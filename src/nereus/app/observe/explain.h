// Why a run changed its plan, or did not: `nereus explain`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"

namespace nereus {

// The events of a run. A last line that was cut off is left out. Throws
// Error(kInvalidInput) naming the file if it cannot be read, a line of it is no event, or it is not
// empty but holds no event.
std::vector<Json> read_events(const std::filesystem::path& file);

// A text for people from the lines of events.jsonl: for every replan what triggered it, the
// inequality with its numbers, the verdict and reason; for every transition its primitives,
// predicted and measured. With `step`, only what happened when that many steps were done. Decisions
// that nothing triggered are left out.
std::string render_explain(const std::vector<Json>& events, std::optional<int> step = {});

}  // namespace nereus
