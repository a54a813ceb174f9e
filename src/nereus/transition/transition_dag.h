// A transition: primitives of all model-stages in one admissible order, with its costs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/cost/calibration.h"
#include "nereus/transition/primitive.h"

namespace nereus {

enum class EdgeKind { kState, kResource };

struct Edge {
  int from = 0;  // primitive ids
  int to = 0;
  EdgeKind kind = EdgeKind::kState;
  bool operator==(const Edge&) const = default;
};

void to_json(Json& j, const Edge& edge);
void from_json(const Json& j, Edge& edge);

struct TransitionDag {
  Plan from;
  Plan to;
  std::vector<Primitive> primitives;  // in execution order; ids 0 … n-1
  std::vector<Edge> edges;            // from < to in that order
  std::map<DeviceId, Bytes>
      peak_bytes;    // of logical state, while the primitives run in their order
  Seconds makespan;  // sum of the predictions: primitives run one after the other
  bool empty() const { return primitives.empty(); }
  bool operator==(const TransitionDag&) const = default;
};

// The local DAG of one model-stage in the paper's order Split → Destroy → Extend → Merge through
// T_sub, the largest layout both sides can be split into (gcd of the degrees). Ids are local
// (0 … n-1), costs are not filled in. A last copy is destroyed only after an Extend copied it.
// Units that both sides have stay untouched, and so do sub-units; a unit of which no sub-unit is
// needed is destroyed whole, not split.
struct LocalDag {
  std::vector<Primitive> primitives;
  std::vector<Edge> edges;
};
LocalDag compile_local(const StagePlan& from, const StagePlan& to);

// Orders all local DAGs globally: release before acquire, ties in stage order generation →
// inference → training, then role. An acquisition that does not fit gets resource edges from
// executable Destroys (or other releases) on its devices that do not depend on it. Bytes are
// checked at every event against cluster.device.memory, generation weights in full although they
// may be aliased at run time. Throws Error(kInvalidInput) if the plans are of different
// model-stages. Returns the reason (device, bytes, primitive) if no admissible order fits. The
// result passes verify().
Expected<TransitionDag> compile_transition(const Plan& from, const Plan& to, const JobSpec& job,
                                           const Cluster& cluster, const Calibration& calibration);

// Throws Error(kInternal) if the DAG is cyclic, uses a unit before it exists or after it was
// consumed (in the order given or in another one that the edges allow), drops the last complete
// copy of a model-stage, or does not end in exactly the units of `to`.
void verify(const TransitionDag& dag);

// {"from", "to", "primitives": […], "edges": […], "peak_bytes": {…}, "makespan_s"} and back.
void to_json(Json& j, const TransitionDag& dag);
void from_json(const Json& j, TransitionDag& dag);
// Graphviz.
std::string to_dot(const TransitionDag& dag);
// A table for people: id, kind, model-stage, units, bytes, predicted seconds.
std::string to_table(const TransitionDag& dag);

}  // namespace nereus
