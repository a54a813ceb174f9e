#include "nereus/runtime/live/rewarding.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "nereus/core/base/log.h"
#include "nereus/runtime/engine/stopwatch.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/rl/rewards/place_score.h"
#include "nereus/runtime/rl/rewards/python_reward.h"

namespace nereus {

std::unique_ptr<Reward> open_reward(const LiveOptions& options) {
  if (options.reward != "python") return make_reward(options.reward, options.reward_options);
  const std::string where = "custom_reward_function";
  return std::make_unique<PythonReward>(
      require<std::string>(options.reward_options, "path", where),
      require<std::string>(options.reward_options, "function", where), options.reward_limits);
}

namespace {

void keep_rollouts(const Experience& experience, int step, const std::vector<std::string>& texts,
                   const PromptSource& prompts, const std::filesystem::path& directory) {
  std::string lines;
  for (size_t i = 0; i < experience.size(); ++i) {
    const Prompt& prompt = prompts.row(experience[i].prompt_index);
    const Json line = {{"input", prompt.text},
                       {"output", texts[i]},
                       {"gts", prompt.ground_truth},
                       {"score", experience[i].scored ? Json(experience[i].score) : Json()},
                       {"step", step + 1}};
    // A response may end in the middle of a character.
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  try {
    write_text(directory / (std::to_string(step + 1) + ".jsonl"), lines);
  } catch (const Error& error) {
    log::warn(std::string(error.what()) + "; the step's responses are not kept");
  }
}

std::vector<std::string> decoded(const Experience& experience, const Tokenizer& tokenizer) {
  std::vector<std::vector<int64_t>> responses;
  for (const Sample& sample : experience) responses.push_back(sample.response);
  return tokenizer.decode_batch(responses);
}

// What a step's responses came to.
struct Tally {
  std::map<RewardFailure, int64_t> failures;
  std::string first_reason;
  std::map<std::string, std::vector<double>> extras;  // further numbers by name

  int64_t failed() const {
    int64_t count = 0;
    for (const auto& [kind, of_kind] : failures) count += of_kind;
    return count;
  }
};

// A sample without a score carries 0 for those that must count something.
void place_failure(Sample& sample) {
  sample.scored = false;
  sample.score = 0;
  sample.token_scores.assign(sample.response.size(), 0.0);
}

// Fills the samples' scores. Scores that do not fit the response are failures as well.
Tally place_results(Experience& experience, std::vector<RewardResult> results) {
  Tally tally;
  for (size_t i = 0; i < experience.size(); ++i) {
    RewardResult& result = results[i];
    try {
      if (result.failure == RewardFailure::kNone) place_score(experience[i], result.output);
    } catch (const Error& error) {
      result.failure = RewardFailure::kRaised;
      result.reason = error.what();
    }
    if (result.failure == RewardFailure::kNone) {
      for (const auto& [name, value] : result.output.extra) tally.extras[name].push_back(value);
      continue;
    }
    if (tally.failed() == 0) tally.first_reason = result.reason;
    ++tally.failures[result.failure];
    place_failure(experience[i]);
  }
  return tally;
}

Metrics metrics_of(const Tally& tally) {
  Metrics metrics;
  const auto count = [&tally](RewardFailure kind) {
    const auto found = tally.failures.find(kind);
    return found == tally.failures.end() ? 0.0 : static_cast<double>(found->second);
  };
  metrics["reward/failures"] = static_cast<double>(tally.failed());
  metrics["reward/timeouts"] = count(RewardFailure::kTimeout);
  metrics["reward/crashes"] = count(RewardFailure::kDied);
  for (const auto& [name, values] : tally.extras) {
    metrics["reward/" + name + "/mean"] =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
  return metrics;
}

// Throws if more of the samples have failed than may.
void complain(const Tally& tally, size_t samples, const LiveOptions& options) {
  if (tally.failed() == 0) return;
  const std::string what = "the reward \"" + options.reward + "\" failed on " +
                           std::to_string(tally.failed()) + " of " + std::to_string(samples) +
                           " samples; the first said: " + tally.first_reason;
  const double share = static_cast<double>(tally.failed()) / static_cast<double>(samples);
  if (share > options.max_reward_failures) throw Error(ErrorCode::kInvalidInput, what);
  log::warn(what);
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

PassResult score_responses(Experience& experience, int step, const Reward& reward,
                           const Tokenizer& tokenizer, const PromptSource& prompts,
                           const LiveOptions& options, EarlyScores* early) {
  const Stopwatch timer;
  const std::vector<std::string> texts = decoded(experience, tokenizer);
  std::map<size_t, RewardResult> known;
  if (early != nullptr) known = early->take(options.stop);
  std::vector<size_t> unknown;
  std::vector<RewardInput> inputs;
  for (size_t i = 0; i < experience.size(); ++i) {
    if (known.contains(i)) continue;
    unknown.push_back(i);
    inputs.push_back(reward_input(experience[i], prompts, texts[i]));
  }
  if (!inputs.empty()) {
    std::vector<RewardResult> others = reward.score_all(inputs, options.stop);
    for (size_t i = 0; i < unknown.size(); ++i) known.emplace(unknown[i], std::move(others[i]));
  }
  std::vector<RewardResult> results;
  for (auto& [index, result] : known) results.push_back(std::move(result));
  const Tally tally = place_results(experience, std::move(results));
  if (!options.rollout_directory.empty()) {
    keep_rollouts(experience, step, texts, prompts, options.rollout_directory);
  }
  complain(tally, experience.size(), options);
  return {{{OpClass::kHost, timer.elapsed()}}, metrics_of(tally)};
}

PassResult score_by_model(Runtime& runtime, Experience& experience, int step,
                          const Tokenizer& tokenizer, const PromptSource& prompts,
                          const LiveOptions& options) {
  PassResult result = infer_scores(runtime, experience, options.stop);
  if (options.rollout_directory.empty()) return result;
  const Stopwatch timer;
  keep_rollouts(experience, step, decoded(experience, tokenizer), prompts,
                options.rollout_directory);
  result.by_class[OpClass::kHost] += timer.elapsed();
  return result;
}

PassResult score(Runtime& runtime, Experience& experience, int step, const Reward* reward,
                 const Tokenizer& tokenizer, const PromptSource& prompts,
                 const LiveOptions& options, EarlyScores* early) {
  return reward == nullptr
             ? score_by_model(runtime, experience, step, tokenizer, prompts, options)
             : score_responses(experience, step, *reward, tokenizer, prompts, options, early);
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
  std::vector<RewardInput> inputs;
  Experience samples(responses.size());
  for (size_t i = 0; i < responses.size(); ++i) {
    samples[i].response = responses[i];
    samples[i].finished = true;
    samples[i].prompt_index = prompts.entries()[i].index;
    inputs.push_back(reward_input(samples[i], prompts, texts[i]));
  }
  const Tally tally = place_results(samples, reward.score_all(inputs, {}));
  const auto first = std::ranges::find(samples, false, &Sample::scored);
  return {tally.failed(),
          first == samples.end() ? -1 : prompts.entries()[first - samples.begin()].index,
          tally.first_reason};
}

}  // namespace nereus
