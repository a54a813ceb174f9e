#include "nereus/live/rewarding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nereus/data/files.h"
#include "nereus/engine/stopwatch.h"
#include "nereus/rl/rewards/place_score.h"
#include "nereus/rl/rewards/python_reward.h"

namespace nereus {

std::unique_ptr<Reward> open_reward(const LiveOptions& options) {
  if (options.reward != "python") return make_reward(options.reward, options.reward_options);
  const std::string where = "custom_reward_function";
  return std::make_unique<PythonReward>(
      require<std::string>(options.reward_options, "path", where),
      require<std::string>(options.reward_options, "function", where));
}

namespace {

RewardInput input_for(const Sample& sample, const Prompt& prompt, std::string response) {
  return {.prompt = prompt.text,
          .response = std::move(response),
          .ground_truth = prompt.ground_truth,
          .response_tokens = static_cast<int64_t>(sample.response.size()),
          .finished = sample.finished,
          .data_source = prompt.data_source,
          .extra_info = prompt.extra.value("extra_info", Json())};
}

void keep_rollouts(const Experience& experience, int step, const std::vector<std::string>& texts,
                   const PromptSource& prompts, const std::filesystem::path& directory) {
  std::string lines;
  for (size_t i = 0; i < experience.size(); ++i) {
    const Prompt& prompt = prompts.row(experience[i].prompt_index);
    const Json line = {{"input", prompt.text},
                       {"output", texts[i]},
                       {"gts", prompt.ground_truth},
                       {"score", experience[i].score},
                       {"step", step + 1}};
    // A response may end in the middle of a character.
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  write_text(directory / (std::to_string(step + 1) + ".jsonl"), lines);
}

std::vector<std::string> decoded(const Experience& experience, const Tokenizer& tokenizer) {
  std::vector<std::vector<int64_t>> responses;
  for (const Sample& sample : experience) responses.push_back(sample.response);
  return tokenizer.decode_batch(responses);
}

constexpr int64_t kTriedTokens = 16;

// Of the whole vocabulary, evenly spread.
std::vector<int64_t> spread_tokens(int64_t vocab_size) {
  const int64_t count = std::min(vocab_size, kTriedTokens);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(i * vocab_size / count);
  return tokens;
}

}  // namespace

NodeTiming score_responses(Experience& experience, int step, const Reward& reward,
                           const Tokenizer& tokenizer, const PromptSource& prompts,
                           const LiveOptions& options, Metrics& metrics) {
  const Stopwatch timer;
  const std::vector<std::string> texts = decoded(experience, tokenizer);
  int64_t failures = 0;
  std::string first_failure;
  std::map<std::string, std::vector<double>> extras;
  for (size_t i = 0; i < experience.size(); ++i) {
    Sample& sample = experience[i];
    const Prompt& prompt = prompts.row(sample.prompt_index);
    try {
      const RewardOutput output = reward.score(input_for(sample, prompt, texts[i]));
      place_score(sample, output);
      for (const auto& [name, value] : output.extra) extras[name].push_back(value);
    } catch (const std::exception& error) {
      if (failures++ == 0) first_failure = error.what();
      place_score(sample, RewardOutput{});
      sample.scored = false;
    }
  }
  if (!options.rollout_directory.empty()) {
    keep_rollouts(experience, step, texts, prompts, options.rollout_directory);
  }
  metrics["reward/failures"] = static_cast<double>(failures);
  for (const auto& [name, values] : extras) {
    metrics["reward/" + name + "/mean"] =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
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

NodeTiming score_by_model(Runtime& runtime, Experience& experience, int step,
                          const Tokenizer& tokenizer, const PromptSource& prompts,
                          const LiveOptions& options) {
  NodeTiming timing = infer_scores(runtime, experience, options.stop);
  if (options.rollout_directory.empty()) return timing;
  const Stopwatch timer;
  keep_rollouts(experience, step, decoded(experience, tokenizer), prompts,
                options.rollout_directory);
  const Seconds took = timer.elapsed();
  timing.by_class[OpClass::kHost] += took;
  timing.total += took;
  return timing;
}

NodeTiming score(Runtime& runtime, Experience& experience, int step, const Reward* reward,
                 const Tokenizer& tokenizer, const PromptSource& prompts,
                 const LiveOptions& options, Metrics& metrics) {
  return reward == nullptr
             ? score_by_model(runtime, experience, step, tokenizer, prompts, options)
             : score_responses(experience, step, *reward, tokenizer, prompts, options, metrics);
}

RewardTrial try_reward(const Reward& reward, const Tokenizer& tokenizer,
                       const PromptSource& prompts, int64_t vocab_size) {
  const std::vector<int64_t> spread = spread_tokens(vocab_size);
  std::vector<std::vector<int64_t>> responses;
  for (const PromptSource::Entry& entry : prompts.entries()) {
    responses.push_back(entry.tokens);
    responses.back().insert(responses.back().end(), spread.begin(), spread.end());
  }
  const std::vector<std::string> texts = tokenizer.decode_batch(responses);
  RewardTrial trial;
  for (size_t i = 0; i < responses.size(); ++i) {
    const PromptSource::Entry& entry = prompts.entries()[i];
    Sample sample;
    sample.response = responses[i];
    sample.finished = true;
    try {
      place_score(sample, reward.score(input_for(sample, entry.prompt, texts[i])));
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
