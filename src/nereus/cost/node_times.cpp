#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "nereus/cost/generation_times.h"
#include "nereus/cost/step_latency.h"

namespace nereus {
namespace {

constexpr double kHostSecondsPerSample = 20e-6;  // scoring and bookkeeping of one sequence

// All units of the pass run at once, so devices of a host may slow each other down.
double share_of(const StagePlan& stage, const std::vector<DeviceId>& unit, const Cluster& cluster) {
  std::map<int, int> active;
  for (const std::vector<DeviceId>& each : stage.units) {
    for (DeviceId device : each) ++active[device.host];
  }
  double share = 1;
  for (DeviceId device : unit) {
    share = std::min(share, speed_share(cluster.hosts.at(device.host), active[device.host]));
  }
  return share;
}

double sum(const Work& work) {
  double total = 0;
  for (const auto& [whole, operations] : work) total += operations.sum();
  return total;
}

Work slowest_unit(const StagePlan& stage, const JobSpec& job, const Cluster& cluster,
                  const std::function<Work(const UnitView&)>& work_of) {
  Work slowest;
  for (const std::vector<DeviceId>& unit : stage.units) {
    Work work = work_of({.stage = &stage,
                         .devices = unit,
                         .model = &job.models.at(stage.model_stage.role),
                         .job = &job,
                         .cluster = &cluster,
                         .share = share_of(stage, unit, cluster)});
    if (slowest.empty() || sum(work) > sum(slowest)) slowest = std::move(work);
  }
  return slowest;
}

// The ranks that hold the same part of the gradient: of all units, and of all ZeRO ranks in them.
std::vector<std::vector<DeviceId>> gradient_rings(const StagePlan& stage) {
  const int places = stage.layout.tp * stage.layout.pp;
  std::vector<std::vector<DeviceId>> rings(static_cast<size_t>(places));
  for (const std::vector<DeviceId>& unit : stage.units) {
    for (size_t index = 0; index < unit.size(); ++index) {
      rings[index % static_cast<size_t>(places)].push_back(unit[index]);
    }
  }
  return rings;
}

bool crosses_hosts(const std::vector<DeviceId>& ring) {
  return std::ranges::any_of(ring, [&](DeviceId d) { return d.host != ring.front().host; });
}

// The most rings that leave one host, through its network, at once.
int rings_per_host(const std::vector<std::vector<DeviceId>>& rings) {
  std::map<int, int> leaving;
  for (const std::vector<DeviceId>& ring : rings) {
    if (!crosses_hosts(ring)) continue;
    std::set<int> hosts;
    for (DeviceId device : ring) hosts.insert(device.host);
    for (int host : hosts) ++leaving[host];
  }
  int most = 1;
  for (const auto& [host, count] : leaving) most = std::max(most, count);
  return most;
}

// All-reduce of the flat gradient, and under ZeRO gathering the weights that each rank updated.
Operations gradient_work(const StagePlan& stage, const ModelUse& model, const Cluster& cluster) {
  const std::vector<int64_t> elements = weight_elements(model.spec, stage.layout);
  const double size = double(size_of(model.weights).count());
  const std::vector<std::vector<DeviceId>> rings = gradient_rings(stage);
  const int at_once = rings_per_host(rings);
  Operations slowest;
  for (size_t place = 0; place < rings.size(); ++place) {
    const LinkUse link = ring_link(cluster, rings[place], at_once);
    const double count = double(elements[place]);
    const Operations work = all_reduce(count * std::max(4.0, size), stage.dp(), link) +
                            all_gather(count * size, stage.layout.zero, link);
    if (work.sum() > slowest.sum()) slowest = work;
  }
  return slowest;
}

// The part of `comm` that is left when the last of `passes` equal backward passes hides some.
Operations exposed(const Operations& comm, const Operations& compute, double passes,
                   double overlap) {
  constexpr double kBackwardShare = 2.0 / 3;
  const double hidden = overlap * kBackwardShare * compute.sum() / passes;
  return comm * std::max(0.0, 1 - hidden / comm.sum());
}

Work training_work(const StagePlan& stage, const JobSpec& job, const Cluster& cluster) {
  const Workload& workload = job.workload;
  const MicroBatches batches = micro_batches(workload.mini_batch, stage);
  Work work = slowest_unit(stage, job, cluster, [&](const UnitView& unit) {
    Work of_unit = pipeline_work(unit, batches, stage.recompute ? kRecomputePass : kTrainingPass);
    of_unit[OpClass::kOptimizer] = optimizer_work(unit);
    return of_unit;
  });
  if (stage.dp() > 1) {
    work[OpClass::kGradientComm] =
        exposed(gradient_work(stage, job.models.at(stage.model_stage.role), cluster),
                work[OpClass::kCompute], double(batches.count), job.execution.gradient_overlap);
  }
  const double steps =
      double(workload.epochs) * double(ceil_div(workload.samples, workload.mini_batch));
  for (auto& [op_class, operations] : work) operations *= steps;
  return work;
}

// Fraction of the interval of length 1 / parts at `index` that that of another cut covers.
double covered(int index, int parts, int other_index, int other_parts) {
  const double begin = std::max(double(index) / parts, double(other_index) / other_parts);
  const double end = std::min(double(index + 1) / parts, double(other_index + 1) / other_parts);
  return std::max(0.0, (end - begin) * parts);
}

// The share of the weights that rank `index` of `target` needs that `device` holds for training.
double resident_share(const Emu& target, int index, const EmuCollection& sources, int num_layers) {
  const Rank rank = rank_at(target.layout, index);
  const LayerRange needed = stage_layers(num_layers, target.layout.pp, rank.pp);
  double best = 0;
  for (const Emu& source : sources) {
    const int there = index_of(source, target.devices[static_cast<size_t>(index)]);
    if (there < 0) continue;
    const Rank held = rank_at(source.layout, there);
    const LayerRange layers = stage_layers(num_layers, source.layout.pp, held.pp);
    const int common = std::min(needed.end, layers.end) - std::max(needed.begin, layers.begin);
    best = std::max(best, std::max(0, common) / double(needed.end - needed.begin) *
                              covered(rank.tp, target.layout.tp, held.tp, source.layout.tp));
  }
  return best;
}

// What a generation rank's device does not hold for training already, it receives: from its own
// host if a training unit is there, else through the network that the host's devices share.
Work sync_work(const Plan& plan, const JobSpec& job, const Cluster& cluster) {
  const StagePlan& generation = at(plan, {Role::kActor, Stage::kGeneration});
  const EmuCollection sources = units_of(at(plan, {Role::kActor, Stage::kTraining}));
  const ModelUse& actor = job.models.at(Role::kActor);
  const std::vector<int64_t> elements = weight_elements(actor.spec, generation.layout);
  const auto near = [&](int host) {
    return std::ranges::any_of(sources, [&](const Emu& source) {
      return std::ranges::all_of(source.devices, [&](DeviceId d) { return d.host == host; });
    });
  };
  std::map<int, int> receiving;  // devices of each host that receive from others
  std::vector<std::pair<DeviceId, double>> received;
  for (const Emu& target : units_of(generation)) {
    for (int index = 0; index < generation.layout.devices(); ++index) {
      const double missing = 1 - resident_share(target, index, sources, actor.spec.num_layers);
      if (missing <= 0) continue;
      const DeviceId device = target.devices[static_cast<size_t>(index)];
      received.emplace_back(device, missing * double(elements[static_cast<size_t>(index)]) *
                                        double(size_of(actor.weights).count()));
      if (!near(device.host)) ++receiving[device.host];
    }
  }
  Operations slowest;
  for (const auto& [device, bytes] : received) {
    const bool far = receiving.contains(device.host);
    const LinkUse link =
        far ? far_link(cluster, device.host, receiving.at(device.host)) : LinkUse{cluster.in_host};
    const Operations work = send(bytes, link);
    if (work.sum() > slowest.sum()) slowest = work;
  }
  return {{OpClass::kTransfer, slowest}};
}

// State that waits in host memory comes before its pass and goes back after it if that changed it.
Operations offload_work(const StagePlan& stage, Pass pass, const ModelUse& model,
                        const Cluster& cluster) {
  const bool trains = pass == Pass::kTrain;
  const StateSchema schema =
      state_schema(model, {stage.model_stage.role, trains ? Stage::kTraining : Stage::kInference});
  Bytes most;
  for (int index = 0; index < stage.layout.devices(); ++index) {
    most = std::max(most, state_bytes(schema, stage.layout, index));
  }
  const double bytes = double(most.count()) * (trains ? 2 : 1);
  return {OpClass::kHostCopy, bytes / cluster.to_host.bandwidth + cluster.to_host.latency.count()};
}

Work pass_work(const WorkflowNode& node, const StagePlan& stage, const JobSpec& job,
               const Cluster& cluster) {
  switch (node.pass) {
    case Pass::kTrain:
      return training_work(stage, job, cluster);
    case Pass::kGenerate:
      return slowest_unit(stage, job, cluster, generation_work);
    default:
      return slowest_unit(stage, job, cluster, [&](const UnitView& unit) {
        return pipeline_work(unit, micro_batches(job.workload.samples, stage), kForwardPass);
      });
  }
}

}  // namespace

Work ideal_node_work(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                     const Cluster& cluster) {
  switch (node.pass) {
    case Pass::kReward:
    case Pass::kAdvantage:
      return {
          {OpClass::kHost, {OpClass::kHost, kHostSecondsPerSample * double(job.workload.samples)}}};
    case Pass::kSyncWeights:
      return sync_work(plan, job, cluster);
    default:
      break;
  }
  const StagePlan& stage = at(plan, node.runs_on);
  Work work = pass_work(node, stage, job, cluster);
  if (stage.offload) {
    work[OpClass::kTransfer] =
        offload_work(stage, node.pass, job.models.at(node.runs_on.role), cluster);
  }
  return work;
}

ClassTimes ideal_node_times(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                            const Cluster& cluster) {
  return class_times(ideal_node_work(node, plan, job, cluster));
}

}  // namespace nereus
