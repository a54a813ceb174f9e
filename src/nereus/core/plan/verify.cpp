// Is a plan possible for these models on these devices?
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "nereus/core/base/text.h"
#include "nereus/core/cluster/limits.h"
#include "nereus/core/plan/plan.h"

namespace nereus {

namespace {

constexpr int kMostSequences = 1 << 20;  // of a batch

[[noreturn]] void refuse(const StagePlan& stage, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, to_string(stage.model_stage) + ": " + what);
}

bool suits_kv_heads(const ModelSpec& spec, int tp) {
  return spec.num_kv_heads % tp == 0 || tp % spec.num_kv_heads == 0;
}

// Why the model cannot be cut into tp parts, or "".
std::string objection(const ModelSpec& spec, int tp) {
  const std::string name = "tp " + std::to_string(tp);
  if (tp < 1) return name + " is less than 1";
  if (spec.num_heads % tp != 0) {
    return name + " does not divide " + std::to_string(spec.num_heads) + " attention heads";
  }
  if (!suits_kv_heads(spec, tp)) {
    return name + " neither divides nor is a multiple of " + std::to_string(spec.num_kv_heads) +
           " KV heads";
  }
  if (tp > spec.vocab_size) {
    return name + " is more than the vocabulary of " + std::to_string(spec.vocab_size);
  }
  if (spec.num_experts == 0 && tp > spec.intermediate_size) {
    return name + " is more than the FFN width of " + std::to_string(spec.intermediate_size);
  }
  return "";
}

std::string listing(const DevicePool& pool) {
  constexpr int kShown = 16;
  std::vector<std::string> names;
  for (int i = 0; i < std::min(pool.size(), kShown); ++i) {
    names.push_back(to_string(pool.devices()[static_cast<size_t>(i)]));
  }
  if (pool.size() > kShown) names.push_back("… (" + std::to_string(pool.size()) + " in all)");
  return join(names, ", ");
}

// Experts are indivisible things that ep groups of tp / ep ranks share out evenly.
bool suits_experts(const ModelSpec& spec, int tp, int ep) {
  if (ep < 1 || tp % ep != 0) return false;
  if (spec.num_experts == 0) return ep == 1;
  return spec.num_experts % ep == 0 && tp / ep <= spec.moe_intermediate_size;
}

void verify_layout(const StagePlan& stage, const ModelSpec& spec) {
  const Layout layout = stage.layout;
  if (const std::string problem = objection(spec, layout.tp); !problem.empty()) {
    refuse(stage, problem + "; legal: " + join(legal_tp(spec, spec.num_heads), ", "));
  }
  if (!suits_experts(spec, layout.tp, layout.ep)) {
    refuse(stage, "ep " + std::to_string(layout.ep) + " does not suit " +
                      std::to_string(spec.num_experts) + " experts of FFN width " +
                      std::to_string(spec.moe_intermediate_size) + " under tp " +
                      std::to_string(layout.tp) +
                      "; legal: " + join(legal_ep(spec, layout.tp), ", "));
  }
  const bool training = stage.model_stage.stage == Stage::kTraining;
  if (layout.zero < 1 || layout.zero > kMostDevices || (layout.zero > 1 && !training)) {
    refuse(stage, "zero " + std::to_string(layout.zero) + " is not possible; legal: 1, and up to " +
                      std::to_string(kMostDevices) +
                      " in training, which alone has optimizer state");
  }
  if (layout.pp < 1 || layout.pp > spec.num_layers) {
    refuse(stage, "pp " + std::to_string(layout.pp) + " is not possible with " +
                      std::to_string(spec.num_layers) + " layers; legal: 1 to " +
                      std::to_string(spec.num_layers));
  }
  // tp divides the heads, pp is at most the layers, zero the devices: in 64 bits, nothing
  // overflows.
  const int64_t devices = int64_t{layout.tp} * layout.pp * layout.zero;
  if (devices > kMostDevices) {
    refuse(stage, to_string(layout) + " needs " + std::to_string(devices) +
                      " devices for a unit; at most " + std::to_string(kMostDevices) +
                      " are legal");
  }
  if (stage.micro_batch < 1 || stage.micro_batch > kMostSequences) {
    refuse(stage, "micro_batch " + std::to_string(stage.micro_batch) +
                      " is not possible; legal: at least 1, up to " +
                      std::to_string(kMostSequences));
  }
  const bool generation = stage.model_stage.stage == Stage::kGeneration;
  if (stage.waves < 1 || stage.waves > kMostSequences || (stage.waves > 1 && !generation)) {
    refuse(stage, "waves " + std::to_string(stage.waves) +
                      " are not possible; legal: 1, and more in generation, up to " +
                      std::to_string(kMostSequences));
  }
}

// The tensor-parallel ranks of a pipeline stage talk in every layer: they share a host.
void verify_tp_on_one_host(const StagePlan& stage, const std::vector<DeviceId>& unit) {
  for (size_t i = 0; i < unit.size(); ++i) {
    const DeviceId first = unit[i - i % static_cast<size_t>(stage.layout.tp)];
    if (unit[i].host != first.host) {
      refuse(stage, "tp " + std::to_string(stage.layout.tp) + " spans hosts: devices " +
                        to_string(first) + " and " + to_string(unit[i]) +
                        " hold parts of the same layers; tensor parallelism stays on one host");
    }
  }
}

void verify_units(const StagePlan& stage, const DevicePool& pool) {
  if (stage.units.empty()) refuse(stage, "has no units; list the devices of at least one replica");
  std::set<DeviceId> used;
  for (size_t number = 0; number < stage.units.size(); ++number) {
    const std::vector<DeviceId>& unit = stage.units[number];
    if (static_cast<int>(unit.size()) != stage.layout.devices()) {
      refuse(stage, "unit " + std::to_string(number) + " has " + std::to_string(unit.size()) +
                        " devices; " + to_string(stage.layout) + " needs " +
                        std::to_string(stage.layout.devices()));
    }
    for (DeviceId device : unit) {
      if (!pool.contains(device)) {
        refuse(stage,
               "device " + to_string(device) + " is not available; available: " + listing(pool));
      }
      if (!used.insert(device).second) {
        refuse(stage, "device " + to_string(device) +
                          " is used twice; each device holds one part of one replica");
      }
    }
    verify_tp_on_one_host(stage, unit);
  }
}

}  // namespace

std::vector<int> legal_tp(const ModelSpec& spec, int limit) {
  std::vector<int> legal;
  for (int tp = 1; tp <= std::min(limit, spec.num_heads); ++tp) {
    if (objection(spec, tp).empty()) legal.push_back(tp);
  }
  return legal;
}

std::vector<int> legal_ep(const ModelSpec& spec, int tp) {
  std::vector<int> legal;
  for (int ep = 1; ep <= tp; ++ep) {
    if (suits_experts(spec, tp, ep)) legal.push_back(ep);
  }
  return legal;
}

void verify(const Plan& plan, const DevicePool& pool, std::span<const ModelSpec> model_of) {
  NEREUS_CHECK(model_of.size() == plan.stages.size(), "one ModelSpec is needed for each stage");
  if (plan.stages.empty()) throw Error(ErrorCode::kInvalidInput, "the plan has no stages");
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    if (i > 0 && stage.model_stage <= plan.stages[i - 1].model_stage) {
      refuse(stage, "is repeated or out of order in the plan; list each model-stage once, sorted");
    }
    verify_layout(stage, model_of[i]);
    verify_units(stage, pool);
  }
}

}  // namespace nereus
