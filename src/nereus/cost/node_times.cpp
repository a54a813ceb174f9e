#include <algorithm>
#include <functional>

#include "nereus/cost/collectives.h"
#include "nereus/cost/pass_times.h"
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

Seconds sum(const ClassTimes& times) {
  Seconds total;
  for (const auto& [op_class, time] : times) total += time;
  return total;
}

ClassTimes slowest_unit(const StagePlan& stage, const JobSpec& job, const Cluster& cluster,
                        const std::function<ClassTimes(const UnitView&)>& times_of) {
  ClassTimes slowest;
  for (const std::vector<DeviceId>& unit : stage.units) {
    ClassTimes times = times_of({.stage = &stage,
                                 .devices = unit,
                                 .model = &job.models.at(stage.model_stage.role),
                                 .workload = &job.workload,
                                 .cluster = &cluster,
                                 .share = share_of(stage, unit, cluster)});
    if (slowest.empty() || sum(times) > sum(slowest)) slowest = std::move(times);
  }
  return slowest;
}

// All-reduce of the flat gradient between the ranks of equal place in all units. The ranks of a
// unit that are on one host go through that host's network at once.
Seconds gradient_time(const StagePlan& stage, const ModelUse& model, const Cluster& cluster) {
  const std::vector<int64_t> elements = weight_elements(model.spec, stage.layout);
  const double size = std::max<double>(4, double(size_of(model.weights).count()));
  Seconds slowest;
  for (int index = 0; index < stage.layout.devices(); ++index) {
    std::vector<DeviceId> peers;
    for (const std::vector<DeviceId>& unit : stage.units) peers.push_back(unit.at(index));
    LinkSpec link = slowest_link(cluster, peers);
    const bool crosses =
        std::ranges::any_of(peers, [&](DeviceId peer) { return peer.host != peers.front().host; });
    if (crosses) {
      link.bandwidth /=
          double(std::ranges::count(stage.units.front(), peers.front().host, &DeviceId::host));
    }
    slowest = std::max(slowest, all_reduce_time(double(elements[index]) * size, stage.dp(), link));
  }
  return slowest;
}

ClassTimes training_times(const StagePlan& stage, const JobSpec& job, const Cluster& cluster) {
  const Workload& workload = job.workload;
  const MicroBatches batches = micro_batches(workload.mini_batch, stage);
  ClassTimes times = slowest_unit(stage, job, cluster, [&](const UnitView& unit) {
    ClassTimes of_unit =
        pipeline_times(unit, batches, stage.recompute ? kRecomputePass : kTrainingPass);
    of_unit[OpClass::kOptimizer] = optimizer_time(unit);
    return of_unit;
  });
  if (stage.dp() > 1) {
    times[OpClass::kGradientComm] =
        gradient_time(stage, job.models.at(stage.model_stage.role), cluster);
  }
  const double steps =
      double(workload.epochs) * double(ceil_div(workload.samples, workload.mini_batch));
  for (auto& [op_class, time] : times) time = time * steps;
  return times;
}

// Each generation rank whose shard its device does not already hold for training receives it.
ClassTimes sync_times(const Plan& plan, const JobSpec& job, const Cluster& cluster) {
  const StagePlan& generation = at(plan, {Role::kActor, Stage::kGeneration});
  const StagePlan& training = at(plan, {Role::kActor, Stage::kTraining});
  const ModelUse& actor = job.models.at(Role::kActor);
  const std::vector<int64_t> elements = weight_elements(actor.spec, generation.layout);
  const EmuCollection sources = units_of(training);
  Seconds slowest;
  for (const Emu& target : units_of(generation)) {
    for (int index = 0; index < generation.layout.devices(); ++index) {
      const DeviceId device = target.devices[index];
      const bool alias = std::ranges::any_of(
          sources, [&](const Emu& source) { return same_shards(target, source, device); });
      if (alias) continue;
      const bool near = std::ranges::any_of(sources, [&](const Emu& source) {
        return std::ranges::all_of(source.devices,
                                   [&](DeviceId d) { return d.host == device.host; });
      });
      const double bytes = double(elements[index]) * double(size_of(actor.weights).count());
      slowest = std::max(slowest, send_time(bytes, near ? cluster.in_host : cluster.between_hosts));
    }
  }
  if (slowest == Seconds()) return {};
  return {{OpClass::kTransfer, slowest}};
}

}  // namespace

ClassTimes ideal_node_times(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                            const Cluster& cluster) {
  switch (node.pass) {
    case Pass::kReward:
    case Pass::kAdvantage:
      return {{OpClass::kHost, Seconds(kHostSecondsPerSample * double(job.workload.samples))}};
    case Pass::kSyncWeights:
      return sync_times(plan, job, cluster);
    case Pass::kTrain:
      return training_times(at(plan, node.runs_on), job, cluster);
    case Pass::kGenerate:
      return slowest_unit(at(plan, node.runs_on), job, cluster, generation_times);
    case Pass::kLogProbs:
    case Pass::kValues:
      break;
  }
  const StagePlan& stage = at(plan, node.runs_on);
  return slowest_unit(stage, job, cluster, [&](const UnitView& unit) {
    return pipeline_times(unit, micro_batches(job.workload.samples, stage), kForwardPass);
  });
}

}  // namespace nereus
