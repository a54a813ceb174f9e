#include "nereus/core/controller/monitor.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nereus {

void Horizon::cross(int step) {
  if (last_crossing_ >= 0 && step > last_crossing_) {
    expected_ += smoothing_ * (step - last_crossing_ - expected_);
  }
  last_crossing_ = step;
}

Json Horizon::save() const { return {{"expected", expected_}, {"last_crossing", last_crossing_}}; }

void Horizon::restore(const Json& saved) {
  expected_ = require<double>(saved, "expected", "horizon");
  last_crossing_ = require<int>(saved, "last_crossing", "horizon");
}

double Monitor::threshold(const std::string& signal) const {
  if (signal == "response_length") return options_.length_threshold;
  if (signal == "efficiency") return options_.efficiency_threshold;
  return std::numeric_limits<double>::infinity();
}

Horizon& Monitor::horizon_of(const std::string& signal) {
  return horizons_.try_emplace(signal, options_.horizon_smoothing, started_).first->second;
}

std::vector<Monitor::Crossing> Monitor::check(int step,
                                              const std::map<std::string, double>& signals) {
  if (started_ < 0) started_ = step;
  std::vector<Crossing> crossings;
  for (const auto& [signal, value] : signals) {
    const double reference = references_.try_emplace(signal, value).first->second;
    if (!(std::abs(value - reference) > threshold(signal) * std::abs(reference))) continue;
    crossings.push_back({signal, reference, value, threshold(signal)});
    horizon_of(signal).cross(step);
  }
  return crossings;
}

void Monitor::event(int step, const std::string& signal) { horizon_of(signal).cross(step); }

void Monitor::reset(const std::map<std::string, double>& signals) {
  for (const auto& [signal, value] : signals) references_[signal] = value;
}

void Monitor::forget(const std::string& signal) { references_.erase(signal); }

double Monitor::horizon(const std::vector<std::string>& signals) const {
  double smallest = std::numeric_limits<double>::infinity();
  for (const std::string& signal : signals) {
    const auto horizon = horizons_.find(signal);
    smallest = std::min(smallest, horizon == horizons_.end() ? 1 : horizon->second.expected());
  }
  return signals.empty() ? 1 : smallest;
}

Json Monitor::save() const {
  Json horizons = Json::object();
  for (const auto& [signal, horizon] : horizons_) horizons[signal] = horizon.save();
  return {{"started", started_}, {"references", references_}, {"horizons", horizons}};
}

void Monitor::restore(const Json& saved) {
  const std::string where = "monitor";
  started_ = require<int>(saved, "started", where);
  references_ = require<std::map<std::string, double>>(saved, "references", where);
  horizons_.clear();
  const Json horizons = require<Json>(saved, "horizons", where);
  for (const auto& [signal, horizon] : horizons.items()) horizon_of(signal).restore(horizon);
}

}  // namespace nereus
