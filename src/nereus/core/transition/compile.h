// From two plans to a transition: which primitives, in what order, in how much memory and time.
#pragma once

#include <memory>

#include "nereus/core/cluster/cluster.h"
#include "nereus/core/cost/calibration.h"
#include "nereus/core/transition/schedule.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {

struct TransitionOptions {
  // Replace a model-stage's primitives by one direct route from current to target boxes wherever
  // that moves fewer bytes or takes less time, and fits.
  bool fuse = true;
  // Park the only copy of a model-stage in host memory if nothing else frees the devices needed.
  bool host_staging = true;
  // Bytes of each device that are taken while the transition runs: by passes of other model-stages
  // when it runs beside them.
  std::map<DeviceId, Bytes> reserved;
};

// Keeps byte tables of a job's model-stages from one compilation to the next. One thread.
class TransitionCompiler final {
 public:
  TransitionCompiler(const JobSpec& job, const Cluster& cluster);
  ~TransitionCompiler();

  // Local DAGs of all model-stages, ordered globally: release before acquire, ties in stage order
  // generation → inference → training, then role. An acquisition that fits only thanks to releases
  // gets resource edges from executable ones on its devices; one that does not fit is done layer by
  // layer, and if that does not help either, a copy that stands in the way waits in host memory
  // ("0:host"). Bytes are checked at every event, generation weights in full although they may be
  // aliased at run time, against usable_memory() without headroom: an allocator holds more than is
  // in use. Only if nothing is admissible then, and nothing is reserved, against all of
  // cluster.device.memory. Deterministic. Throws Error(kInvalidInput)
  // if the plans are of different model-stages. Returns the reason (device, bytes, primitive) if
  // no admissible order was found. The result passes verify().
  Expected<TransitionDag> compile(const Plan& from, const Plan& to, const Calibration& calibration,
                                  const TransitionOptions& options = {});
  // The scheduling problem that compile() sets itself first, with calibrated durations: what an
  // oracle may solve.
  ScheduleProblem formulate(const Plan& from, const Plan& to, const Calibration& calibration,
                            const TransitionOptions& options = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// One compilation.
Expected<TransitionDag> compile_transition(const Plan& from, const Plan& to, const JobSpec& job,
                                           const Cluster& cluster, const Calibration& calibration,
                                           const TransitionOptions& options = {});

}  // namespace nereus
