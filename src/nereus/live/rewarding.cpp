#include "nereus/live/rewarding.h"

#include "nereus/engine/stopwatch.h"
#include "nereus/rl/rewards/place_score.h"

namespace nereus {

NodeTiming score_responses(Experience& experience, const Reward& reward, const Tokenizer& tokenizer,
                           const PromptSource& prompts, const LiveOptions& options,
                           Metrics& metrics) {
  const Stopwatch timer;
  std::vector<std::vector<int64_t>> responses;
  for (const Sample& sample : experience) responses.push_back(sample.response);
  std::vector<std::string> texts = tokenizer.decode_batch(responses);

  int64_t failures = 0;
  std::string first_failure;
  for (size_t i = 0; i < experience.size(); ++i) {
    Sample& sample = experience[i];
    const Prompt& prompt = prompts.row(sample.prompt_index);
    try {
      const RewardInput input{prompt.text, std::move(texts[i]), prompt.ground_truth,
                              static_cast<int64_t>(sample.response.size()), sample.finished};
      place_score(sample, reward.score(input));
    } catch (const std::exception& error) {
      if (failures++ == 0) first_failure = error.what();
      place_score(sample, RewardOutput{});
    }
  }
  metrics["reward/failures"] = static_cast<double>(failures);
  const double share = static_cast<double>(failures) / static_cast<double>(experience.size());
  if (share > options.max_reward_failures) {
    throw Error(ErrorCode::kInvalidInput, "the reward \"" + options.reward + "\" failed on " +
                                              std::to_string(failures) + " of " +
                                              std::to_string(experience.size()) +
                                              " samples; the first said: " + first_failure);
  }
  const Seconds took = timer.elapsed();
  return {"reward", took, {{OpClass::kHost, took}}};
}

}  // namespace nereus
