// Reward functions: text and tokens in, scores out. Add one by implementing Reward and naming it in
// make_reward().
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"
#include "nereus/core/base/stop_token.h"

namespace nereus {

struct RewardInput {
  std::string prompt;        // as text; of a conversation, the content of the last user message
  std::string response;      // decoded, special tokens left out
  std::string ground_truth;  // as text; may be empty
  std::string ground_truth_json;  // the same with the type it has; empty: a text
  int64_t response_tokens = 0;    // EOS included
  bool finished = false;
  std::string data_source;  // verl's; may be empty
  std::string extra_info;   // the row's, an object as JSON, or empty
};

struct RewardOutput {
  double score = 0;  // placed on the last response token
  std::vector<double>
      token_scores;  // if not empty: dense, one per response token, instead of score
  std::map<std::string, double> extra;  // to be averaged over the step's samples that have it
};

enum class RewardFailure {
  kNone,
  kRaised,   // the function refused the input, or gave no number
  kTimeout,  // it took too long
  kDied,     // the process that it ran in died, or took too much memory
};

// What a reward came to: an output, or why there is none.
struct RewardResult {
  RewardOutput output;
  RewardFailure failure = RewardFailure::kNone;
  std::string reason;  // of the failure, one line
};

// Scores of responses that come one by one. Used and destroyed by the thread that began it; drops
// what is still under way when it is destroyed.
class RewardCalls {
 public:
  virtual ~RewardCalls() = default;
  virtual void add(size_t index, const RewardInput& input) = 0;
  // By index, what came to an end since the last time: waits for something to, for `patience` at
  // most.
  virtual std::map<size_t, RewardResult> poll(std::chrono::milliseconds patience) = 0;
};

class Reward {
 public:
  virtual ~Reward() = default;
  // Pure function of its input; called on the host thread. Throws if there is no score.
  virtual RewardOutput score(const RewardInput& input) const = 0;
  // The scores of many responses, in their order; what score() throws is a failure of that response
  // alone. Throws Stopped within a second after `stop` says so.
  virtual std::vector<RewardResult> score_all(const std::vector<RewardInput>& inputs,
                                              const StopToken& stop) const;
  // Whether calls may wait or compute for long, elsewhere than on the calling thread, so that it
  // pays to begin with some responses before others are there: by begin().
  virtual bool is_slow() const { return false; }
  // Waits until nobody else uses the reward, and keeps others waiting as long as it lives.
  virtual std::unique_ptr<RewardCalls> begin() const;
};

// "vader_sentiment" {lexicon: path, sign: 1 | -1}, "digit_completion" {}, "last_number" {} or
// "response_length" {sign: 1 | -1}. Throws Error(kInvalidInput) for another name (listing these) or
// a bad option.
std::unique_ptr<Reward> make_reward(const std::string& name, const Json& options);

}  // namespace nereus
