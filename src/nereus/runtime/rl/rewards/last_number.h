// Whether the answer to a calculation is right.
#pragma once

#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// 1 if the last number of the response is the ground truth, else 0, as verl's GSM8K score in its
// "flexible" form. Numbers are compared as numbers, and commas between digits are left out:
// "1,250." and "1250.0" are equal. Throws Error(kInvalidInput) if the ground truth is missing or no
// number.
class LastNumber final : public Reward {
 public:
  RewardOutput score(const RewardInput& input) const override;
};

}  // namespace nereus
