#include "nereus/runtime/live/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nereus/runtime/rl/advantage.h"
#include "nereus/runtime/rl/kl.h"

namespace nereus {

namespace {

// Mean, largest and smallest of a stream of numbers.
class Summary {
 public:
  void add(double value) {
    sum_ += value;
    max_ = std::max(max_, value);
    min_ = std::min(min_, value);
    ++count_;
  }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double max() const { return max_; }
  void write(const std::string& prefix, Metrics& metrics) const {
    if (count_ == 0) return;
    metrics[prefix + "/mean"] = mean();
    metrics[prefix + "/max"] = max_;
    metrics[prefix + "/min"] = min_;
  }

 private:
  double sum_ = 0;
  double max_ = -std::numeric_limits<double>::infinity();
  double min_ = std::numeric_limits<double>::infinity();
  int64_t count_ = 0;
};

Summary over_tokens(const Experience& experience, std::vector<double> Sample::* member) {
  Summary summary;
  for (const Sample& sample : experience) {
    if (!sample.scored) continue;
    for (const double value : sample.*member) summary.add(value);
  }
  return summary;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

}  // namespace

void add_batch_metrics(const Experience& experience, int64_t response_limit, Metrics& metrics) {
  Summary scores;
  Summary rewards;
  Summary lengths;
  Summary prompts;
  double at_limit = 0;
  double aborted = 0;
  double excluded = 0;
  for (const Sample& sample : experience) {
    if (sample.scored) {
      scores.add(sample.score);
      rewards.add(sum(sample.rewards));
    } else {
      ++excluded;
    }
    lengths.add(static_cast<double>(sample.response.size()));
    prompts.add(static_cast<double>(sample.prompt.size()));
    at_limit += static_cast<int64_t>(sample.response.size()) >= response_limit ? 1 : 0;
    aborted += sample.response.empty() ? 1 : 0;
  }
  const auto count = static_cast<double>(experience.size());
  scores.write("critic/score", metrics);
  rewards.write("critic/rewards", metrics);
  over_tokens(experience, &Sample::advantages).write("critic/advantages", metrics);
  over_tokens(experience, &Sample::returns).write("critic/returns", metrics);
  over_tokens(experience, &Sample::values).write("critic/values", metrics);
  metrics["reward/excluded"] = excluded;
  if (const auto equal = share_of_equal_groups(experience))
    metrics["frac_reward_zero_std"] = *equal;
  lengths.write("response_length", metrics);
  metrics["response_length/clip_ratio"] = at_limit / count;
  prompts.write("prompt_length", metrics);
  metrics["response/aborted_ratio"] = aborted / count;
}

void add_log_prob_metrics(const Experience& experience, Metrics& metrics) {
  const auto is_known = [](const Sample& sample) { return !sample.old_log_probs.empty(); };
  if (std::ranges::none_of(experience, is_known)) return;
  Summary probability_diff;
  for (const Sample& sample : experience) {
    for (size_t t = 0; t < sample.old_log_probs.size(); ++t) {
      probability_diff.add(
          std::abs(std::exp(sample.rollout_log_probs[t]) - std::exp(sample.old_log_probs[t])));
    }
  }
  metrics["training/rollout_probs_diff_mean"] = probability_diff.mean();
  metrics["training/rollout_probs_diff_max"] = probability_diff.max();
  if (!experience.front().ref_log_probs.empty()) {
    metrics["actor/ref_kl"] = mean_token_kl(experience);
  }
}

void add_value_metrics(const Experience& experience, Metrics& metrics) {
  const double return_mean = over_tokens(experience, &Sample::returns).mean();
  double error_mean = 0;
  double tokens = 0;
  for (const Sample& sample : experience) {
    if (!sample.scored) continue;
    for (size_t t = 0; t < sample.returns.size(); ++t) {
      error_mean += sample.returns[t] - sample.values[t];
      ++tokens;
    }
  }
  if (tokens == 0) return;
  error_mean /= tokens;
  double return_variance = 0;
  double error_variance = 0;
  for (const Sample& sample : experience) {
    if (!sample.scored) continue;
    for (size_t t = 0; t < sample.returns.size(); ++t) {
      return_variance += std::pow(sample.returns[t] - return_mean, 2);
      error_variance += std::pow(sample.returns[t] - sample.values[t] - error_mean, 2);
    }
  }
  const double divisor = std::max(tokens - 1, 1.0);
  metrics["critic/vf_explained_var"] =
      1 - (error_variance / divisor) / (return_variance / divisor + 1e-5);
}

void add_performance_metrics(const StepReport& report, Metrics& metrics) {
  const auto tokens = static_cast<double>(report.prompt_tokens + report.response_tokens);
  const double step_s = report.step_s.count();
  for (const Span& node : report.spans) {
    if (node.idle) continue;
    const double took = node.took().count();
    metrics["timing_s/" + node.name] = took;
    const double per = node.tokens > 0 ? static_cast<double>(node.tokens) : tokens;
    metrics["timing_per_token_ms/" + node.name] = took * 1e3 / std::max(per, 1.0);
  }
  Bytes peak;
  double devices = 0;  // that held anything: those of the plan
  for (const auto& [device, bytes] : report.peak_bytes) {
    peak = std::max(peak, bytes);
    devices += bytes > Bytes() ? 1 : 0;
  }
  metrics["timing_s/step"] = step_s;
  metrics["perf/total_num_tokens"] = tokens;
  metrics["perf/time_per_step"] = step_s;
  metrics["perf/throughput"] = tokens / step_s / devices;
  metrics["perf/max_memory_allocated_gb"] = static_cast<double>(peak.count()) / (1 << 30);
  metrics["training/global_step"] = report.step + 1;
}

}  // namespace nereus
