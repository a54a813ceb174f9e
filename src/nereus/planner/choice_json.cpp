#include <cmath>

#include "nereus/planner/planner.h"

namespace nereus {
namespace {

// Log-deviation of a step whose classes err independently, each weighted by its share of the time.
double log_deviation(const StepLatency& latency, const Calibration& calibration) {
  std::map<OpClass, double> share;
  for (const NodeLatency& node : latency.nodes) {
    for (const auto& [op_class, ideal] : node.ideal) {
      share[op_class] += ideal / latency.total / calibration.efficiency(op_class);
    }
  }
  double variance = 0;
  for (const auto& [op_class, part] : share) {
    variance += std::pow(part * calibration.log_deviation(op_class), 2);
  }
  return std::sqrt(variance);
}

}  // namespace

Json to_json(const PlanChoice& choice, const Calibration& calibration) {
  const StepLatency& latency = choice.best.latency;
  const double spread = std::exp(2 * log_deviation(latency, calibration));
  Json stages = Json::object();
  for (const NodeLatency& node : latency.nodes) stages[node.name] = node.predicted;
  Json memory = Json::array();
  for (const MemoryEntry& entry : choice.best.memory.entries) {
    memory.push_back({{"device", entry.device},
                      {"role", to_string(entry.model_stage.role)},
                      {"stage", to_string(entry.model_stage.stage)},
                      {"component", entry.component},
                      {"bytes", entry.bytes},
                      {"resident", entry.resident}});
  }
  Json peak = Json::object();
  for (const auto& [device, bytes] : choice.best.memory.peak) peak[to_string(device)] = bytes;
  Json runners_up = Json::array();
  for (const Rejection& rejection : choice.rejected) {
    runners_up.push_back(
        {{"plan", rejection.plan}, {"step_s", rejection.step}, {"why", rejection.why}});
  }
  return {{"plan", choice.best.plan},
          {"step_s", latency.total},
          {"step_s_low", latency.total * (1 / spread)},
          {"step_s_high", latency.total * spread},
          {"stages_s", stages},
          {"memory", memory},
          {"peak_bytes", peak},
          {"runners_up", runners_up}};
}

}  // namespace nereus
