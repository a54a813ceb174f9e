#include "nereus/runtime/rl/rewards/place_score.h"

#include <numeric>

#include "nereus/core/base/error.h"

namespace nereus {

void place_score(Sample& sample, const RewardOutput& output) {
  const size_t length = sample.response.size();
  if (output.token_scores.empty()) {
    sample.score = output.score;
    sample.token_scores.assign(length, 0.0);
    if (length > 0) sample.token_scores.back() = output.score;
    return;
  }
  if (output.token_scores.size() != length) {
    throw Error(ErrorCode::kInvalidInput,
                "the reward gave " + std::to_string(output.token_scores.size()) +
                    " token scores for a response of " + std::to_string(length) +
                    " tokens; it must give one per token (EOS included), or none");
  }
  sample.token_scores = output.token_scores;
  sample.score = std::accumulate(sample.token_scores.begin(), sample.token_scores.end(), 0.0);
}

}  // namespace nereus
