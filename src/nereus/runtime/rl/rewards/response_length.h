// The number of tokens of the response: needs no text, for benches and models without a tokenizer.
#pragma once

#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// score = sign · tokens.
class ResponseLength final : public Reward {
 public:
  explicit ResponseLength(int sign) : sign_(sign) {}
  RewardOutput score(const RewardInput& input) const override {
    return {.score = sign_ * static_cast<double>(input.response_tokens)};
  }

 private:
  int sign_;
};

}  // namespace nereus
