#include "nereus/app/observe/progress.h"

#include <unistd.h>

#include <cmath>
#include <iostream>

#include "nereus/core/base/text.h"

namespace nereus {

namespace {

constexpr const char* kEraseLine = "\r\033[K";
constexpr double kSmoothing = 0.3;

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  return std::to_string(whole / 60) + "m" +
         format_number(static_cast<double>(whole % 60), "%02.0f") + "s";
}

std::string layout_of(const Plan& plan, Stage stage) {
  const StagePlan* found = find(plan, {Role::kActor, stage});
  if (found == nullptr) return "-";
  const std::string text = to_string(found->layout) + "·dp" + std::to_string(found->dp());
  return found->waves == 1 ? text : text + " in " + std::to_string(found->waves) + " waves";
}

}  // namespace

ProgressLine::ProgressLine(std::ostream& out, int total_steps, bool live)
    : out_(out), total_steps_(total_steps), live_(live) {}

ProgressLine ProgressLine::to_terminal(int total_steps) {
  return {std::cout, total_steps, isatty(STDOUT_FILENO) == 1};
}

void ProgressLine::step(const StepReport& report, const Plan& plan) {
  const double took = report.step_s.count();
  step_s_ = step_s_ == 0 ? took : (1 - kSmoothing) * step_s_ + kSmoothing * took;
  line_ = describe(report, plan);
  out_.clear();  // what could not be written (a full disk, a lost reader) is no reason to be silent
  if (live_) {
    out_ << kEraseLine << line_ << std::flush;
  } else {
    out_ << line_ << std::endl;
  }
}

std::string ProgressLine::describe(const StepReport& report, const Plan& plan) {
  const auto metric = [&report](const char* name) {
    const auto found = report.metrics.find(name);
    return found == report.metrics.end() ? std::string("-") : format_number(found->second, "%.3f");
  };
  const double rate = static_cast<double>(report.response_tokens) / report.step_s.count();
  return "step " + std::to_string(report.step + 1) + "/" + std::to_string(total_steps_) +
         "  reward " + metric("critic/score/mean") + "  KL " + metric("actor/ref_kl") +
         "  length " + format_number(report.workload.response_mean, "%.0f") + "  " +
         format_number(rate, "%.0f") + " tok/s  [" + short_plan(plan) + "]  ETA " +
         duration(step_s_ * (total_steps_ - report.step - 1));
}

void ProgressLine::message(const std::string& text) {
  out_.clear();
  if (live_ && !line_.empty()) {
    out_ << kEraseLine << text << "\n" << line_ << std::flush;
  } else {
    out_ << text << std::endl;
  }
}

void ProgressLine::finish() {
  if (live_ && !line_.empty()) out_ << std::endl;
  line_.clear();
}

std::string validation_text(const std::map<std::string, double>& metrics) {
  const std::string prefix = "val-core/", middle = "/reward/mean@";
  std::vector<std::string> scores;
  for (const auto& [key, value] : metrics) {
    const size_t end = key.rfind(middle);
    if (!key.starts_with(prefix) || end == std::string::npos) continue;
    const std::string source = key.substr(prefix.size(), end - prefix.size());
    scores.push_back(format_number(value, "%.3f") + " of " + source);
  }
  if (scores.empty()) return "";
  return "validation: reward " + join(scores, ", ") + ", length " +
         format_number(metrics.at("val-aux/response_length/mean"), "%.0f");
}

std::string short_plan(const Plan& plan) {
  return std::to_string(devices_of(plan).size()) + " devices, train " +
         layout_of(plan, Stage::kTraining) + ", gen " + layout_of(plan, Stage::kGeneration);
}

}  // namespace nereus
