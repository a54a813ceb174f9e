// A reward that a user wrote in Python.
#pragma once

#include "nereus/bridge/python_function.h"
#include "nereus/rl/rewards/reward.h"

namespace nereus {

// Called as verl calls one:
//
//   def compute_score(data_source, solution_str, ground_truth, extra_info=None):
//       return 1.0      # or {"score": 1.0, "some_metric": 0.5, ...}
//
// extra_info is the row's "extra_info" with "prompt", "response_tokens" and "finished" beside it.
// The other numbers of a dict become RewardOutput::extra. score() throws Error(kInvalidInput) for
// what the function raises, and for an answer without a finite score.
class PythonReward final : public Reward {
 public:
  // Throws as PythonFunction does, naming the config's keys.
  PythonReward(const std::filesystem::path& file, const std::string& function);
  RewardOutput score(const RewardInput& input) const override;

 private:
  PythonFunction function_;
};

}  // namespace nereus
