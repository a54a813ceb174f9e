// How long moving state takes at the links' full speed: what calibration compares with.
#pragma once

#include "nereus/state/reshard.h"
#include "nereus/transition/transition_dag.h"

namespace nereus {

// The busiest device decides: its copies within the device plus the larger of what it sends and
// what it receives, each peer costing one latency. Not less than one local latency.
Seconds ideal_duration(const ReshardPlan& plan, const StateSchema& schema, const Cluster& cluster);
// The moves that a primitive makes; none for a Destroy.
ReshardPlan moves_of(const Primitive& primitive, const StateSchema& schema);
Seconds ideal_duration(const Primitive& primitive, const JobSpec& job, const Cluster& cluster);
// The primitives one after the other, as the executor runs them.
Seconds ideal_makespan(const TransitionDag& dag, const JobSpec& job, const Cluster& cluster);

}  // namespace nereus
