// Scores of responses to which others are still being written.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "nereus/core/base/stop_token.h"
#include "nereus/runtime/bridge/tokenizer.h"
#include "nereus/runtime/live/prompt_source.h"
#include "nereus/runtime/rl/rewards/reward.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// What a reward is asked about a sample; `text` is its decoded response.
RewardInput reward_input(const Sample& sample, const PromptSource& prompts, std::string text);

// Has a thread of its own, on which responses are decoded and given to the reward as they come.
// Destroying it drops what is not scored yet, within a second.
class EarlyScores final {
 public:
  // All must outlive it; the reward is a slow one.
  EarlyScores(const Reward& reward, const Tokenizer& tokenizer, const PromptSource& prompts);
  ~EarlyScores();
  EarlyScores(const EarlyScores&) = delete;
  EarlyScores& operator=(const EarlyScores&) = delete;

  // Any thread. A sample whose response is written again (it is the same) is scored once.
  void add(size_t index, Sample sample);
  // Waits for the results of all samples that were added, by their index. Throws what scoring
  // threw, and Stopped within a second after `stop` says so. Afterwards nothing may be added.
  std::map<size_t, RewardResult> take(const StopToken& stop);

 private:
  void work();
  // Samples that are waiting; none if there is nothing to do but to wait for results.
  std::map<size_t, Sample> next();
  void give(RewardCalls& calls, const std::map<size_t, Sample>& samples) const;

  const Reward& reward_;
  const Tokenizer& tokenizer_;
  const PromptSource& prompts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, Sample> waiting_;
  std::map<size_t, RewardResult> results_;
  std::set<size_t> added_;
  bool closed_ = false;   // nothing is added any more
  bool dropped_ = false;  // nobody wants results any more
  bool ended_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses all others
};

}  // namespace nereus
