#include "nereus/core/cost/calibration.h"

#include <algorithm>
#include <cmath>

namespace nereus {
namespace {

constexpr double kWeight = 0.3;                 // of a new observation, once a few are there
const double kLargestStep = std::log(4.0);      // one outlier moves no further than this
const double kUnseenDeviation = std::log(2.0);  // a default may well be wrong by a factor of 2
constexpr double kMemoryDecay = 0.1;            // a large memory ratio fades this fast
constexpr double kSmallestMemoryFactor = 0.5;   // a short batch says little about a full one
constexpr double kLargestMemoryFactor = 4;      // a tiny prediction's ratio says nothing

}  // namespace

double default_efficiency(OpClass op_class) {
  constexpr double kLinks = 0.2, kLocal = 0.3;
  switch (op_class) {
    case OpClass::kHost:
    case OpClass::kRamp:  // its ideal time is what measurements show
    case OpClass::kFarRamp:
      return 1;
    case OpClass::kTransfer:
    case OpClass::kSwitch:
    case OpClass::kHostCopy:
      return kLinks;
    case OpClass::kGradientComm:
      return kLocal;
    default:
      return is_collective(op_class) ? kLinks : kLocal;
  }
}

double Calibration::efficiency(OpClass op_class) const {
  const auto entry = entries_.find(op_class);
  if (entry != entries_.end()) return std::exp(entry->second.log_efficiency);
  // Where one kind of collective falls short of its default, the others are trusted no more.
  double shortfall = 1;
  for (const auto& [seen, learned] : entries_) {
    if (!is_collective(seen) || !is_collective(op_class)) continue;
    shortfall = std::min(shortfall, std::exp(learned.log_efficiency) / default_efficiency(seen));
  }
  return default_efficiency(op_class) * shortfall;
}

bool Calibration::seen(OpClass op_class) const { return entries_.contains(op_class); }

double Calibration::log_deviation(OpClass op_class) const {
  const auto entry = entries_.find(op_class);
  return entry == entries_.end() ? kUnseenDeviation : std::sqrt(entry->second.variance);
}

void Calibration::observe(OpClass op_class, Seconds ideal, Seconds measured) {
  const double log_ratio = std::log(ideal.count() / measured.count());
  if (!(ideal.count() > 0 && measured.count() > 0 && std::isfinite(log_ratio))) return;

  Entry& entry = entries_[op_class];
  ++entry.observations;
  if (entry.observations == 1) {
    entry.log_efficiency = log_ratio;
    entry.variance = kUnseenDeviation * kUnseenDeviation;
    return;
  }
  // A plain mean at first, so that the slow first step of a run is soon forgotten.
  const double weight = std::max(kWeight, 1.0 / entry.observations);
  const double residual = std::clamp(log_ratio - entry.log_efficiency, -kLargestStep, kLargestStep);
  entry.log_efficiency += weight * residual;
  entry.variance = (1 - weight) * (entry.variance + weight * residual * residual);
}

void Calibration::observe_memory(Bytes predicted_transient, Bytes measured_transient) {
  if (predicted_transient.count() <= 0 || measured_transient.count() <= 0) return;
  const double ratio = std::clamp(measured_transient / predicted_transient, kSmallestMemoryFactor,
                                  kLargestMemoryFactor);
  const double faded = memory_factor_ + kMemoryDecay * (ratio - memory_factor_);
  memory_factor_ = std::max(ratio, faded);
}

void Calibration::observe_settling(Seconds measured) {
  constexpr double kNewest = 0.5;
  settling_ = settling_ == Seconds() ? measured : settling_ + (measured - settling_) * kNewest;
}

void to_json(Json& j, const Calibration& calibration) {
  j = {{"memory_factor", calibration.memory_factor_},
       {"settling_s", calibration.settling_},
       {"classes", Json::object()}};
  for (const auto& [op_class, entry] : calibration.entries_) {
    j["classes"][to_string(op_class)] = {{"log_efficiency", entry.log_efficiency},
                                         {"variance", entry.variance},
                                         {"observations", entry.observations}};
  }
}

void from_json(const Json& j, Calibration& calibration) {
  const std::string where = "calibration";
  calibration = {};
  calibration.memory_factor_ = require<double>(j, "memory_factor", where);
  if (j.contains("settling_s")) calibration.settling_ = require<Seconds>(j, "settling_s", where);
  const Json classes = require<Json>(j, "classes", where);
  for (const auto& [name, entry] : classes.items()) {
    const std::string place = where + ": class " + name;
    calibration.entries_[parse_op_class(name)] = {
        .log_efficiency = require<double>(entry, "log_efficiency", place),
        .variance = require<double>(entry, "variance", place),
        .observations = require<int>(entry, "observations", place)};
  }
}

}  // namespace nereus
