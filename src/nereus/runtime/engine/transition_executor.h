// Executing a transition on live state, device by device, and picking up the pieces of one that
// failed.
#pragma once

#include <functional>
#include <string>

#include "nereus/core/base/error.h"
#include "nereus/core/job/job.h"
#include "nereus/runtime/engine/state_store.h"

namespace nereus {

// A device is gone, with all that it held.
class DeviceLost final : public Error {
 public:
  explicit DeviceLost(DeviceId device)
      : Error(ErrorCode::kAborted, "device " + to_string(device) + " was lost"), device_(device) {}
  DeviceId device() const { return device_; }

 private:
  DeviceId device_;
};

// Hash per logical tensor of each model-stage.
using StageHashes = std::map<ModelStage, std::map<std::string, uint64_t>>;
// Of all units of a plan. Throws Error(kInternal) naming the first tensor in which two replicas
// differ.
StageHashes hash_stages(const Plan& plan, const StateStore& store, const WorkerPool& workers);

struct TransitionEvent {
  enum class What {
    kStarted,    // predecessors are complete
    kAllocated,  // the chunk's target arenas are there
    kCopied,     // all that the device receives of the chunk has arrived and is valid
    kReleased,   // the chunk of what is freed is gone
  };
  int primitive = 0;
  int chunk = 0;  // number of the chunk (sharding.h) if the primitive is chunked; else 0
  DeviceId device;
  What what = What::kStarted;
};

struct ExecuteOptions {
  bool verify = true;
  // Hashes that the state must have at the end; empty: those that it has at the beginning.
  StageHashes expected;
  // Threads to work on; nullptr: the store's own.
  const WorkerPool* workers = nullptr;
  // bytes/s; > 0: whatever crosses between devices takes at least its time.
  double link_bandwidth = 0;
  // Called on the device's thread; what it throws befalls that device.
  std::function<void(const TransitionEvent&)> on_event;
};

// Runs the primitives of `dag` on the store, `schema_of` giving each model-stage's state. Every
// device does its share of them in the DAG's order, and waits for predecessors only; so independent
// primitives run at once. With `verify` throws Error(kInternal) naming the first tensor of the
// moved model-stages whose hash is another one afterwards. A device that throws (DeviceLost,
// allocation beyond the budget) stops all others at their next step, and the report's `failure`
// says why: then drop() the lost devices from the store and recover(). Peaks are counted from the
// last reset_peak() of each device.
TransitionReport execute(const TransitionDag& dag, StateStore& store,
                         const std::function<StateSchema(ModelStage)>& schema_of,
                         const ExecuteOptions& options = {});

// Makes the units of `to` from whatever valid chunks there are on any device, chunk by chunk, and
// frees everything else; if devices lack the memory for that, by way of a copy in host memory.
// Verifies if `options.expected` says against what. Returns, instead of doing anything, which
// tensors of which model-stage no device holds any more. May fail as execute() does, and be called
// again.
Expected<TransitionReport> recover(const Plan& to, StateStore& store,
                                   const std::function<StateSchema(ModelStage)>& schema_of,
                                   const ExecuteOptions& options = {});

}  // namespace nereus
