#include "nereus/runtime/live/early_scores.h"

#include <chrono>
#include <utility>

namespace nereus {

namespace {

constexpr std::chrono::milliseconds kLook(100);  // between two looks at whether to stop
constexpr std::chrono::milliseconds kAnswers(
    5);  // for answers, before new responses are looked for

}  // namespace

RewardInput reward_input(const Sample& sample, const PromptSource& prompts, std::string text) {
  const Prompt& prompt = prompts.row(sample.prompt_index);
  return {.prompt = prompt.text,
          .response = std::move(text),
          .ground_truth = prompt.ground_truth,
          .ground_truth_json = prompt.ground_truth_json,
          .response_tokens = static_cast<int64_t>(sample.response.size()),
          .finished = sample.finished,
          .data_source = prompt.data_source,
          .extra_info = prompt.extra_info};
}

EarlyScores::EarlyScores(const Reward& reward, const Tokenizer& tokenizer,
                         const PromptSource& prompts)
    : reward_(reward), tokenizer_(tokenizer), prompts_(prompts), thread_([this] { work(); }) {}

EarlyScores::~EarlyScores() {
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
  }
  changed_.notify_all();
}

void EarlyScores::add(size_t index, Sample sample) {
  {
    const std::lock_guard lock(mutex_);
    if (!added_.insert(index).second) return;
    waiting_.emplace(index, std::move(sample));
  }
  changed_.notify_all();
}

std::map<size_t, RewardResult> EarlyScores::take(const StopToken& stop) {
  std::unique_lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  while (!changed_.wait_for(lock, kLook, [this] { return ended_; })) stop.check();
  if (failure_) std::rethrow_exception(failure_);
  return std::move(results_);
}

void EarlyScores::work() {
  try {
    const std::unique_ptr<RewardCalls> calls = reward_.begin();
    size_t given = 0;
    while (true) {
      const std::map<size_t, Sample> samples = next();
      give(*calls, samples);
      given += samples.size();
      std::map<size_t, RewardResult> results = calls->poll(kAnswers);
      const std::lock_guard lock(mutex_);
      results_.merge(results);
      if (dropped_ || (closed_ && waiting_.empty() && results_.size() == given)) break;
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::map<size_t, Sample> EarlyScores::next() {
  std::unique_lock lock(mutex_);
  const auto something_to_do = [this] {
    return closed_ || dropped_ || !waiting_.empty() || results_.size() < added_.size();
  };
  changed_.wait(lock, something_to_do);
  return std::exchange(waiting_, {});
}

void EarlyScores::give(RewardCalls& calls, const std::map<size_t, Sample>& samples) const {
  if (samples.empty()) return;
  std::vector<std::vector<int64_t>> responses;
  for (const auto& [index, sample] : samples) responses.push_back(sample.response);
  std::vector<std::string> texts = tokenizer_.decode_batch(responses);
  size_t i = 0;
  for (const auto& [index, sample] : samples) {
    calls.add(index, reward_input(sample, prompts_, std::move(texts[i++])));
  }
}

}  // namespace nereus
