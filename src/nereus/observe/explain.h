// Why a run changed its plan, or did not: `nereus explain`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nereus/base/json.h"

namespace nereus {

// A text for people from the lines of events.jsonl: for every replan what triggered it, the
// inequality with its numbers, the verdict and reason; for every transition its primitives,
// predicted and measured. With `step`, only what happened when that many steps were done. Decisions
// that nothing triggered are left out.
std::string render_explain(const std::vector<Json>& events, std::optional<int> step = {});

}  // namespace nereus
