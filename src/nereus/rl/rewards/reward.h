// Reward functions: text and tokens in, scores out. Add one by implementing Reward and naming it in
// make_reward().
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nereus/base/json.h"

namespace nereus {

struct RewardInput {
  std::string prompt;    // as text; of a conversation, the content of the last user message
  std::string response;  // decoded, special tokens left out
  std::string ground_truth;
  int64_t response_tokens = 0;  // EOS included
  bool finished = false;
  std::string data_source;  // verl's; may be empty
  Json extra_info;          // the row's, an object, or null
};

struct RewardOutput {
  double score = 0;  // placed on the last response token
  std::vector<double>
      token_scores;  // if not empty: dense, one per response token, instead of score
  std::map<std::string, double> extra;  // to be averaged over the step's samples that have it
};

class Reward {
 public:
  virtual ~Reward() = default;
  // Pure function of its input; called on the host thread. May throw: the caller counts failures.
  virtual RewardOutput score(const RewardInput& input) const = 0;
};

// "vader_sentiment" {lexicon: path, sign: 1 | -1}, "digit_completion" {}, "last_number" {} or
// "response_length" {sign: 1 | -1}. Throws Error(kInvalidInput) for another name (listing these) or
// a bad option.
std::unique_ptr<Reward> make_reward(const std::string& name, const Json& options);

}  // namespace nereus
