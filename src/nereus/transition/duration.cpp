#include "nereus/transition/duration.h"

#include <algorithm>
#include <map>

namespace nereus {

namespace {

struct DeviceLoad {
  Seconds local;
  Seconds out;
  Seconds in;
};

}  // namespace

Seconds ideal_duration(const ReshardPlan& plan, const StateSchema& schema, const Cluster& cluster) {
  std::map<DeviceId, DeviceLoad> loads;
  for (const LinkLoad& load : link_loads(plan, schema)) {
    const LinkSpec& path = link(cluster, load.from, load.to);
    const Seconds time = path.latency + Seconds(load.bytes.count() / path.bandwidth);
    loads[load.from].out += time;
    loads[load.to].in += time;
  }
  for (const Move& move : plan.moves) {
    if (move.from != move.to) continue;
    const auto bytes = volume(move.box) * schema.bytes_per_element().count();
    loads[move.to].local += Seconds(bytes / cluster.local.bandwidth);
  }
  Seconds longest = cluster.local.latency;
  for (const auto& [device, load] : loads) {
    longest = std::max(longest, load.local + std::max(load.out, load.in));
  }
  return longest;
}

ReshardPlan moves_of(const Primitive& primitive, const StateSchema& schema) {
  return reshard(primitive.sources, primitive.targets, schema);
}

Seconds ideal_duration(const Primitive& primitive, const JobSpec& job, const Cluster& cluster) {
  const ModelStage model_stage = primitive.model_stage;
  const StateSchema schema = state_schema(job.models.at(model_stage.role), model_stage);
  return ideal_duration(moves_of(primitive, schema), schema, cluster);
}

Seconds ideal_makespan(const TransitionDag& dag, const JobSpec& job, const Cluster& cluster) {
  Seconds sum;
  for (const Primitive& primitive : dag.primitives) {
    sum += ideal_duration(primitive, job, cluster);
  }
  return sum;
}

}  // namespace nereus
