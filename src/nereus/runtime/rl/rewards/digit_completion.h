// verl's digit-completion task: continue an arithmetic sequence, character by character.
#pragma once

#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// The prompt "a,b:max,n" asks for the n terms after a, b of the arithmetic sequence modulo max,
// joined with commas. Throws Error(kInvalidInput) for another form.
std::string digit_answer(const std::string& prompt);

// Dense reward as in verl's tests/e2e: every character of the response earns 1 / (length of the
// answer + 1) until the first mismatch or the end of the answer. The end token, which has no
// character, earns what the character before it earned; ending at once earns 1 if the answer is
// empty. The best sum is 1.
class DigitCompletion final : public Reward {
 public:
  // Throws Error(kInvalidInput) if the response has more characters than tokens.
  RewardOutput score(const RewardInput& input) const override;
};

}  // namespace nereus
