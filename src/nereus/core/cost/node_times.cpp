#include <algorithm>
#include <functional>

#include "nereus/core/cost/generation_times.h"
#include "nereus/core/cost/step_latency.h"
#include "nereus/core/cost/weight_sync.h"

namespace nereus {
namespace {

constexpr double kHostSecondsPerSample = 20e-6;  // scoring and bookkeeping of one sequence

double sum(const Work& work) {
  double total = 0;
  for (const auto& [whole, operations] : work) total += operations.sum();
  return total;
}

Work slowest_unit(const StagePlan& stage, const Site& site, const JobSpec& job,
                  const Cluster& cluster, const std::function<Work(const UnitView&)>& work_of) {
  Work slowest;
  for (const Site::Unit& unit : site.units) {
    Work work = work_of({.stage = &stage,
                         .devices = unit.devices,
                         .model = &job.models.at(stage.model_stage.role),
                         .elements = &site.elements,
                         .job = &job,
                         .cluster = &cluster,
                         .share = unit.share});
    if (slowest.empty() || sum(work) > sum(slowest)) slowest = std::move(work);
  }
  return slowest;
}

// All-reduce of the flat gradient, and under ZeRO gathering the weights that each rank updated.
Operations gradient_work(const StagePlan& stage, const Site& site, const ModelUse& model) {
  const double size = double(size_of(model.weights).count());
  Operations slowest;
  for (size_t place = 0; place < site.gradient_links.size(); ++place) {
    const LinkUse& link = site.gradient_links[place];
    const double count = double(site.elements.weights[place]);
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

PassShape training_pass(const StagePlan& stage, const Execution& execution) {
  if (!stage.recompute) return kTrainingPass;
  return execution.recomputes_only_what_is_read ? kShortRecomputePass : kRecomputePass;
}

Work training_work(const StagePlan& stage, const Site& site, const JobSpec& job,
                   const Cluster& cluster) {
  const Workload& workload = job.workload;
  const MicroBatches batches = micro_batches(workload.mini_batch, stage);
  Work work = slowest_unit(stage, site, job, cluster, [&](const UnitView& unit) {
    Work of_unit = pipeline_work(unit, batches, training_pass(stage, job.execution));
    of_unit[OpClass::kOptimizer] = optimizer_work(unit);
    return of_unit;
  });
  if (stage.dp() > 1) {
    work[OpClass::kGradientComm] =
        exposed(gradient_work(stage, site, job.models.at(stage.model_stage.role)),
                work[OpClass::kCompute], double(batches.count), job.execution.gradient_overlap);
  }
  const double steps =
      double(workload.epochs) * double(ceil_div(workload.samples, workload.mini_batch));
  for (auto& [op_class, operations] : work) operations *= steps;
  return work;
}

// State that waits in host memory comes before its pass and goes back after it if that changed it.
Operations offload_work(Pass pass, const StateElements& elements, DType weights,
                        const Cluster& cluster) {
  const bool trains = pass == Pass::kTrain;
  const StateWidths width = state_widths(weights, trains ? Stage::kTraining : Stage::kInference);
  int64_t most = 0;
  for (size_t rank = 0; rank < elements.weights.size(); ++rank) {
    most = std::max(most, width.weights * elements.weights[rank] +
                              (width.master + width.moments) * elements.optimizer[rank]);
  }
  const double bytes = double(most) * (trains ? 2 : 1);
  return {OpClass::kHostCopy, bytes / cluster.to_host.bandwidth + cluster.to_host.latency.count()};
}

Work resident_work(const WorkflowNode& node, const StagePlan& stage, const Site& site,
                   const JobSpec& job, const Cluster& cluster) {
  switch (node.pass) {
    case Pass::kTrain:
      return training_work(stage, site, job, cluster);
    case Pass::kGenerate:
      return slowest_unit(stage, site, job, cluster, generation_work);
    default:
      return slowest_unit(stage, site, job, cluster, [&](const UnitView& unit) {
        return pipeline_work(unit, micro_batches(job.workload.samples, stage), kForwardPass);
      });
  }
}

}  // namespace

Work ideal_pass_work(const WorkflowNode& node, const StagePlan& stage, const Site& site,
                     const JobSpec& job, const Cluster& cluster) {
  // A job is copied for those only that see it otherwise: thousands of candidates come by here.
  Work work = is_of_baselines(node) ? resident_work(node, stage, site, seen_by(node, job), cluster)
                                    : resident_work(node, stage, site, job, cluster);
  if (stage.offload) {
    work[OpClass::kTransfer] =
        offload_work(node.pass, site.elements, job.models.at(node.runs_on.role).weights, cluster);
  }
  return work;
}

Work ideal_node_work(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                     const Cluster& cluster) {
  switch (node.pass) {
    case Pass::kReward:
    case Pass::kAdvantage:
      return {
          {OpClass::kHost,
           {OpClass::kHost, kHostSecondsPerSample * double(seen_by(node, job).workload.samples)}}};
    case Pass::kSyncWeights: {
      const StagePlan& generation = at(plan, kActorGeneration);
      const StateSchema schema = state_schema(job.models.at(Role::kActor), generation.model_stage);
      return sync_work(at(plan, kActorTraining), generation, summarize(schema), cluster);
    }
    default:
      break;
  }
  const StagePlan& stage = at(plan, node.runs_on);
  return ideal_pass_work(node, stage, site_of(stage, job, cluster), job, cluster);
}

ClassTimes ideal_node_times(const WorkflowNode& node, const Plan& plan, const JobSpec& job,
                            const Cluster& cluster) {
  return class_times(ideal_node_work(node, plan, job, cluster));
}

}  // namespace nereus
