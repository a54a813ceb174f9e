#include "nereus/app/observe/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "nereus/app/observe/records.h"

namespace nereus {

namespace {

constexpr size_t kMostSteps = 10;

// Steps of the means at either end: they have none in common, unless there is one step only.
size_t window_of(size_t steps) {
  return std::min({kMostSteps, std::max<size_t>(1, steps / 2), steps});
}

// Mean of a metric over the lines that have it; null if none has.
Json mean(std::span<const Json> lines, const char* name) {
  double sum = 0;
  int count = 0;
  for (const Json& line : lines) {
    if (!line.contains(name) || !line.at(name).is_number()) continue;
    sum += line.at(name).get<double>();
    ++count;
  }
  return count == 0 ? Json() : Json(sum / count);
}

// Each decision's forecast is about the step after it.
Json judge_forecasts(const std::vector<Json>& metrics, const std::vector<Json>& events) {
  std::map<int, double> measured;
  for (const Json& line : metrics) {
    const double seconds = number_in(line, "timing_s/step");
    if (seconds > 0) measured[step_in(line)] = seconds;
  }
  std::vector<double> errors;
  double held = 0;
  for (const Json& event : events) {
    const Json next = value_in(event, "next");
    const auto step = measured.find(step_in(event) + 1);
    if (!next.is_object() || step == measured.end()) continue;
    errors.push_back(std::abs(number_in(next, "step_s") / step->second - 1));
    const bool above = step->second >= number_in(next, "step_s_low");
    held += above && step->second <= number_in(next, "step_s_high") ? 1 : 0;
  }
  if (errors.empty()) return {{"steps", 0}, {"median_error", nullptr}, {"held", nullptr}};
  const auto middle = errors.begin() + std::ssize(errors) / 2;
  std::ranges::nth_element(errors, middle);
  return {{"steps", errors.size()},
          {"median_error", *middle},
          {"held", held / static_cast<double>(errors.size())}};
}

// The keys of a transition event that the summary keeps.
Json brief(const Json& event) {
  Json transition;
  for (const char* key : {"step", "from", "to", "primitives", "predicted_s", "measured_s",
                          "exposed_s", "moved_bytes", "verified"}) {
    transition[key] = value_in(event, key);
  }
  return transition;
}

}  // namespace

Json summarize(const std::vector<Json>& metrics, const std::vector<Json>& events) {
  const std::span<const Json> all(metrics);
  const size_t window = window_of(all.size());
  int64_t tokens = 0;
  for (const Json& line : metrics)
    tokens += static_cast<int64_t>(number_in(line, "response_tokens"));
  const double wall = metrics.empty() ? 0 : number_in(metrics.back(), "wall_s");

  Json transitions = Json::array();
  Json faults = Json::array();
  int replans = 0;
  int rejected = 0;
  for (const Json& event : events) {
    const std::string type = text_in(event, "type");
    const bool is_made = value_in(event, "failure").is_null();
    if (type == "transition" && is_made) transitions.push_back(brief(event));
    if (type == "fault") faults.push_back(event);
    const std::string verdict = text_in(event, "verdict");
    if (type == "decision" && !verdict.empty() && verdict != "none") ++replans;
    if (type == "decision" && verdict == "rejected") ++rejected;
  }
  return {{"steps", metrics.size()},
          {"wall_s", wall},
          {"reward_first", mean(all.first(window), "critic/score/mean")},
          {"reward_last", mean(all.last(window), "critic/score/mean")},
          {"kl", mean(all.last(window), "actor/ref_kl")},
          {"response_tokens", tokens},
          {"throughput_tok_s", wall > 0 ? static_cast<double>(tokens) / wall : 0.0},
          {"transitions", transitions},
          {"replans", replans},
          {"rejected", rejected},
          {"faults", faults},
          {"forecasts", judge_forecasts(metrics, events)}};
}

}  // namespace nereus
