// A reward that a user wrote in Python.
#pragma once

#include <filesystem>
#include <mutex>

#include "nereus/runtime/bridge/python_workers.h"
#include "nereus/runtime/rl/rewards/reward.h"
#include "nereus/runtime/rl/rewards/reward_limits.h"

namespace nereus {

// Called as verl calls one:
//
//   def compute_score(data_source, solution_str, ground_truth, extra_info=None):
//       return 1.0      # or {"score": 1.0, "some_metric": 0.5, ...}; `async def` as well
//
// extra_info is the row's "extra_info" with "prompt", "response_tokens" and "finished" beside it.
// Scores may be numbers of Python, numpy or torch. The other finite numbers of a dict become
// RewardOutput::extra. The file is read once and runs in worker processes (PythonWorkers), under a
// module name of its own: whatever it does, only its own answers can be lost.
class PythonReward final : public Reward {
 public:
  // Throws Error(kInvalidInput) naming the file, the config's keys and what is wrong if the file
  // cannot be loaded or has no such function.
  PythonReward(const std::filesystem::path& file, const std::string& function,
               const RewardLimits& limits);
  // Throws Error(kInvalidInput) with the reason if there is no score.
  RewardOutput score(const RewardInput& input) const override;
  std::vector<RewardResult> score_all(const std::vector<RewardInput>& inputs,
                                      const StopToken& stop) const override;
  bool is_slow() const override { return true; }
  std::unique_ptr<RewardCalls> begin() const override;

 private:
  class Calls;
  RewardResult result_of(const PythonAnswer& answer) const;

  std::string name_;  // "rewards.py: compute_score"
  std::unique_ptr<PythonWorkers> pool_;
  mutable std::mutex turn_;  // calls of several threads come one after the other
};

}  // namespace nereus
