// The primitives of one model-stage: how its units become those of another plan.
#pragma once

#include <vector>

#include "nereus/core/transition/primitive.h"

namespace nereus {

// Ids are indices; needs (from, to) point forward.
struct LocalDag {
  std::vector<Primitive> primitives;
  std::vector<std::pair<int, int>> needs;
};

// T_sub: the largest layout that units of both layouts can be split into, gcd of the degrees.
Layout common_part(Layout a, Layout b);

// How a model-stage gets from its units to those of a plan.
enum class Passage {
  // The paper's order Split → Destroy → Extend → Merge through T_sub, the largest layout that both
  // sides can be split into (gcd of the degrees). A last copy is destroyed only after an Extend
  // copied it. Units that both sides have stay untouched, and so do sub-units; a unit of which no
  // sub-unit is needed is destroyed whole, not split.
  kPrimitives,
  // One move of everything straight to its place.
  kRoute,
  // The only copy waits in the memory of a host while its devices are given away: Extend to the
  // host, Destroy, route from the host, Destroy.
  kHostStaging,
};

// Appends the units that it needs to `units` and returns primitives over them; empty if the units
// of both sides are the same. kHostStaging needs the host whose memory is used. Costs are not
// filled in.
LocalDag compile_local(const StagePlan& from, const StagePlan& to, Passage passage,
                       EmuCollection& units, int staging_host = 0);

}  // namespace nereus
