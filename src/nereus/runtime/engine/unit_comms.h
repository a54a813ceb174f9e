// The communicators of a model-stage's devices.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nereus/core/plan/plan.h"
#include "nereus/runtime/comm/communicator_cache.h"

namespace nereus {

// The groups a rank belongs to: its TP group, the same TP rank of all pipeline stages, and the same
// rank of all replicas. Groups of one rank exist too.
struct UnitComms {
  std::shared_ptr<Communicator> tp;
  std::shared_ptr<Communicator> pp;
  std::shared_ptr<Communicator> dp;
  void abort(const std::string& reason) const;
  void throw_if_aborted() const;
};

// The communicators of every device of a model-stage, from the cache where it has them.
std::map<DeviceId, UnitComms> connect(const StagePlan& stage, CommunicatorCache& cache);

}  // namespace nereus
