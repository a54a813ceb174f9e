// Sentiment of the response by VADER's lexicon.
#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>

#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// score = sign · s / √(s² + 15), in (-1, 1), where s is the sum of the lexicon's valences over the
// words of the response, in lower case and without punctuation around them. The normalisation is
// VADER's (Hutto & Gilbert 2014); its rules for negation, emphasis, capitals and idioms are left
// out on purpose: this is the bare sum over the lexicon.
class VaderSentiment final : public Reward {
 public:
  // `lexicon`: lines of token, tab, valence (more columns are ignored). `sign` 1 or -1. Throws
  // Error(kInvalidInput) naming file and line, or the sign.
  VaderSentiment(const std::filesystem::path& lexicon, int sign);

  RewardOutput score(const RewardInput& input) const override;

 private:
  std::unordered_map<std::string, double> valence_;
  int sign_;
};

}  // namespace nereus
