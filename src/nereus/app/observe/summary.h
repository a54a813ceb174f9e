// summary.json: what a run came to, from its metrics and events alone.
#pragma once

#include <vector>

#include "nereus/core/base/json.h"

namespace nereus {

// `metrics`: lines of metrics.jsonl; `events`: lines of events.jsonl, as read_records() gives them.
// Rewards are means over the first and the last ten steps; over the first and the last half,
// rounded down, of a run of less than twenty, so that no step counts in both (that of a run of one
// step does). "kl" is the mean over the same last steps (nats per token, null without a reference).
// "forecasts": how many steps were predicted, the median relative error of their times, and the
// share of them that their intervals held (null if none was).
Json summarize(const std::vector<Json>& metrics, const std::vector<Json>& events);

}  // namespace nereus
