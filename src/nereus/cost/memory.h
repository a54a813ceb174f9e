// Peak memory of a plan, per device, model-stage and component. Formulas: COST.md of the design
// notes, Megatron's theoretical_memory_usage.py and what the runtime's own autograd keeps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/cost/calibration.h"
#include "nereus/state/emu.h"

namespace nereus {

// Components: "weights", "master", "moments" (resident: always there), and while a pass runs
// "gradients", "activations", "logits", "kv_cache" (transient).
struct MemoryEntry {
  DeviceId device;
  ModelStage model_stage;
  std::string component;
  Bytes bytes;
  bool resident = false;
};

struct MemoryPrediction {
  std::vector<MemoryEntry> entries;
  // Resident bytes of all model-stages + the largest transient of any pass on the device (passes on
  // one device run one after the other), calibrated.
  std::map<DeviceId, Bytes> peak;
  std::map<DeviceId, Bytes> resident;
};

// Generation weights cost nothing where same_shards() with a training unit of the actor holds on
// that device (they are aliased), and no reference/critic sharing is assumed.
MemoryPrediction predict_memory(const Plan& plan, const JobSpec& job,
                                const Calibration& calibration);

// The transient bytes of one pass of one unit rank, by component (uncalibrated).
std::vector<MemoryEntry> training_transient(const StagePlan& stage, const ModelUse& model,
                                            const Workload& workload, int index);
std::vector<MemoryEntry> inference_transient(const StagePlan& stage, const ModelUse& model,
                                             const Workload& workload, int index);
std::vector<MemoryEntry> generation_transient(const StagePlan& stage, const ModelUse& model,
                                              const Workload& workload, int index);

// Devices whose peak exceeds capacity × (1 - headroom), worst first, as sentences that name device,
// bytes needed, bytes there and the three largest components. Empty: the plan fits.
std::vector<std::string> memory_violations(const MemoryPrediction& prediction,
                                           const Cluster& cluster, double headroom);

}  // namespace nereus
