// summary.json: what a run came to, from its metrics and events alone.
#pragma once

#include <vector>

#include "nereus/base/json.h"

namespace nereus {

// `metrics`: lines of metrics.jsonl; `events`: lines of events.jsonl. Rewards are means over the
// first and the last ten steps, "kl" over the last ten (nats per token, null without a reference).
// "forecasts": how many steps were predicted, the median relative error of their times, and the
// share of them that their intervals held (null if none was).
Json summarize(const std::vector<Json>& metrics, const std::vector<Json>& events);

}  // namespace nereus
