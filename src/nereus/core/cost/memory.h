// Peak memory of a plan, per device, model-stage and component.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/core/cost/calibration.h"
#include "nereus/core/cost/site.h"
#include "nereus/core/state/emu.h"

namespace nereus {

// Components of state: "weights", "master", "moments"; and of a pass while it runs: those of
// pass_memory.h. The device may be the memory of a host, where state that is offloaded waits.
struct MemoryEntry {
  DeviceId device;
  ModelStage model_stage;
  std::string component;
  Bytes bytes;
  bool resident = false;  // always there; else only while the model-stage's passes run
  bool state = false;     // its size is known: calibration does not change it
};

struct MemoryPrediction {
  std::vector<MemoryEntry> entries;
  // Resident bytes of all model-stages + the largest need of any model-stage's passes on the device
  // (passes on one device run one after the other), calibrated.
  std::map<DeviceId, Bytes> peak;
  std::map<DeviceId, Bytes> resident;
};

// Generation weights cost nothing where same_shards() with a training unit of the actor holds on
// that device and neither waits in host memory (they are aliased), and no reference/critic sharing
// is assumed. State of a stage with `offload` is on its devices only while its passes run.
MemoryPrediction predict_memory(const Plan& plan, const JobSpec& job,
                                const Calibration& calibration);

// What one rank of a unit needs on its device, calibrated; nothing is aliased.
struct RankBytes {
  Bytes resident;
  Bytes passing;  // more, while the model-stage's passes run
  Bytes parked;   // in the memory of its host
};
// By rank.
std::vector<RankBytes> rank_bytes(const StagePlan& stage, const StateElements& elements,
                                  const JobSpec& job, const Calibration& calibration);

// What the runtime of a kind of device takes besides the plan's tensors: none on "cpu"; on an
// accelerator its context, library workspaces and communicator buffers, and the share by which a
// caching allocator holds more than is in use.
struct RuntimeMemory {
  Bytes fixed;
  double fragmentation = 0;
};
RuntimeMemory runtime_memory(const DeviceSpec& device);

// The largest predicted peak that fits a device: capacity less headroom and what its runtime takes.
Bytes usable_memory(const DeviceSpec& device, double headroom);

// Devices whose peak exceeds usable_memory(), and hosts with more parked state than they have room
// for, worst first, as sentences that name device, bytes needed, bytes there and the three largest
// components. Empty: the plan fits.
std::vector<std::string> memory_violations(const MemoryPrediction& prediction,
                                           const Cluster& cluster, double headroom);

}  // namespace nereus
