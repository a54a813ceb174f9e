#include "nereus/live/rewarding.h"

#include <algorithm>
#include <utility>

#include "nereus/engine/stopwatch.h"
#include "nereus/rl/rewards/place_score.h"

namespace nereus {

namespace {

constexpr int64_t kTriedTokens = 16;

// Of the whole vocabulary, evenly spread.
std::vector<int64_t> spread_tokens(int64_t vocab_size) {
  const int64_t count = std::min(vocab_size, kTriedTokens);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(i * vocab_size / count);
  return tokens;
}

}  // namespace

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

RewardTrial try_reward(const Reward& reward, const Tokenizer& tokenizer,
                       const PromptSource& prompts, int64_t vocab_size) {
  const std::vector<int64_t> spread = spread_tokens(vocab_size);
  std::vector<std::vector<int64_t>> responses;
  for (const PromptSource::Entry& entry : prompts.entries()) {
    responses.push_back(entry.tokens);
    responses.back().insert(responses.back().end(), spread.begin(), spread.end());
  }
  std::vector<std::string> texts = tokenizer.decode_batch(responses);
  RewardTrial trial;
  for (size_t i = 0; i < responses.size(); ++i) {
    const PromptSource::Entry& entry = prompts.entries()[i];
    Sample sample;
    sample.response = responses[i];
    try {
      const RewardInput input{entry.prompt.text, std::move(texts[i]), entry.prompt.ground_truth,
                              static_cast<int64_t>(responses[i].size()), true};
      place_score(sample, reward.score(input));
    } catch (const std::exception& error) {
      if (trial.failures++ == 0) {
        trial.first = entry.index;
        trial.message = error.what();
      }
    }
  }
  return trial;
}

}  // namespace nereus
