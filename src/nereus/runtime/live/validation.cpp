#include "nereus/runtime/live/validation.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "nereus/runtime/engine/stopwatch.h"
#include "nereus/runtime/live/rewarding.h"

namespace nereus {

namespace {

// Samples of training are counted from 0: none gets this far, and none shares its noise with these.
constexpr uint64_t kFirstSample = uint64_t{1} << 62;

}  // namespace

LiveOptions for_validation(LiveOptions options) {
  options.data.train_file = options.validation.file;
  options.data.samples_per_prompt = options.validation.samples_per_prompt;
  options.data.shuffle = false;
  options.sampling = options.validation.sampling;
  options.sampling.seed = options.seed;
  options.rollout_directory.clear();
  return options;
}

Validation::Validation(const LiveOptions& options, int64_t longest, int64_t vocab_size,
                       const Tokenizer& tokenizer, const Reward* reward)
    : options_(for_validation(options)),
      step_samples_(options.data.train_batch_size * options.data.samples_per_prompt),
      longest_(longest),
      tokenizer_(tokenizer),
      reward_(reward),
      prompts_(options_.data, tokenizer, vocab_size, options.seed) {}

bool Validation::follows(int step) const {
  const int every = options_.validation.every;
  return every > 0 && ((step + 1) % every == 0 || step + 1 == options_.total_steps);
}

Metrics Validation::run(Runtime& runtime, uint64_t version, int64_t response_limit) const {
  const Stopwatch timer;
  const GenerationOptions generation{.sampling = options_.sampling,
                                     .max_new_tokens = response_limit,
                                     .eos_token_ids = runtime.model(Role::kActor).eos_token_ids,
                                     .ignore_eos = options_.ignore_eos,
                                     .stop = options_.stop};
  Experience experience = all_samples();
  const int64_t count = std::ssize(experience), most = batch_size(response_limit);
  const int64_t batches = (count + most - 1) / most;
  for (int64_t i = 0; i < batches; ++i) {
    const auto begin = experience.begin() + count * i / batches;
    const auto end = experience.begin() + count * (i + 1) / batches;
    Experience batch;
    std::move(begin, end, std::back_inserter(batch));
    generate_responses(runtime, batch, version, generation);
    std::ranges::move(batch, begin);
  }
  Metrics metrics = scored(runtime, experience);
  metrics["timing_s/testing"] = timer.elapsed().count();
  return metrics;
}

Experience Validation::all_samples() const {
  Experience experience;
  for (const PromptSource::Entry& entry : prompts_.entries()) {
    for (int64_t k = 0; k < options_.data.samples_per_prompt; ++k) {
      Sample sample;
      sample.id = kFirstSample + experience.size();
      sample.prompt_index = entry.index;
      sample.prompt = entry.tokens;
      experience.push_back(std::move(sample));
    }
  }
  return experience;
}

int64_t Validation::batch_size(int64_t response_limit) const {
  const int64_t step_tokens = step_samples_ * (longest_ + response_limit);
  const int64_t longest = std::max(longest_, prompts_.longest());
  return std::max<int64_t>(1, step_tokens / (longest + response_limit));
}

Metrics Validation::scored(Runtime& runtime, Experience& experience) const {
  const Metrics said =
      score(runtime, experience, /*step=*/0, reward_, tokenizer_, prompts_, options_).metrics;
  Metrics metrics;
  for (const auto& [key, value] : said) metrics["val-aux/" + key] = value;
  std::map<std::string, std::vector<double>> scores;  // by data source
  double tokens = 0;
  for (const Sample& sample : experience) {
    tokens += static_cast<double>(sample.response.size());
    if (!sample.scored && options_.exclude_unscored) continue;
    const std::string& source = prompts_.row(sample.prompt_index).data_source;
    scores[source.empty() ? "unknown" : source].push_back(sample.score);
  }
  const std::string mean = "/reward/mean@" + std::to_string(options_.data.samples_per_prompt);
  for (const auto& [source, of_source] : scores) {
    metrics["val-core/" + source + mean] =
        std::accumulate(of_source.begin(), of_source.end(), 0.0) /
        static_cast<double>(of_source.size());
  }
  metrics["val-aux/response_length/mean"] = tokens / static_cast<double>(experience.size());
  return metrics;
}

}  // namespace nereus
