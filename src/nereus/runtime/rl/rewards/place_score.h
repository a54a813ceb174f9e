// Where a reward goes on the response.
#pragma once

#include "nereus/runtime/rl/rewards/reward.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// Fills sample.score and sample.token_scores: dense scores as they are (their sum is the score),
// otherwise the score on the last response token, as verl does. An empty response keeps its score
// but no token carries it. Throws Error(kInvalidInput) if dense scores do not match the response
// length.
void place_score(Sample& sample, const RewardOutput& output);

}  // namespace nereus
