#include "nereus/core/planner/problem.h"

#include <algorithm>
#include <array>

#include "nereus/core/cost/weight_sync.h"

namespace nereus {
namespace {

constexpr ModelStage kTraining{Role::kActor, Stage::kTraining};
constexpr ModelStage kGeneration{Role::kActor, Stage::kGeneration};

std::vector<ModelStage> search_order(const Workflow& workflow) {
  std::vector<ModelStage> order{kTraining, kGeneration};
  for (ModelStage model_stage : model_stages(workflow)) {
    if (model_stage != kTraining && model_stage != kGeneration) order.push_back(model_stage);
  }
  return order;
}

}  // namespace

Problem::Problem(JobSpec job, Cluster cluster, const DevicePool& pool,
                 const Calibration& calibration, const PlannerOptions& options, const Plan* current)
    : job_(std::move(job)),
      cluster_(std::move(cluster)),
      line_(pool),
      calibration_(calibration),
      generation_weights_(summarize(state_schema(job_.models.at(Role::kActor), kGeneration))),
      timeline_(between_syncs(job_.workflow), search_order(job_.workflow)),
      host_times_(job_.workflow.nodes.size()) {
  for (ModelStage model_stage : search_order(job_.workflow)) {
    stages_.push_back(
        stage_candidates(model_stage, job_, cluster_, line_, calibration_, options, current));
  }
  for (size_t i = 0; i < host_times_.size(); ++i) {
    const WorkflowNode& node = job_.workflow.nodes[i];
    if (node.pass == Pass::kSyncWeights) sync_nodes_.push_back(static_cast<int>(i));
    if (node.pass != Pass::kReward && node.pass != Pass::kAdvantage) continue;
    host_times_[i] = predicted_time(ideal_node_work(node, {}, job_, cluster_), calibration_);
  }
  sync_times_.resize(stages_[0].placements.size() * stages_[1].placements.size());
}

bool Problem::share(const Placement& a, const Placement& b) {
  const int last = std::min(a.last, b.last);
  for (int i = std::max(a.first, b.first); i <= last; ++i) {
    if (a.ranks[i] >= 0 && b.ranks[i] >= 0) return true;
  }
  return false;
}

Seconds Problem::sync_time(int training, int generation) {
  auto& known = sync_times_[training * stages_[1].placements.size() + generation];
  if (!known) {
    const Work work = sync_work(placement(0, training).stage, placement(1, generation).stage,
                                generation_weights_, cluster_);
    known = predicted_time(work, calibration_) * double(sync_nodes_.size());
  }
  return *known;
}

std::vector<Bytes> Problem::resident(const Choice& placements) const {
  std::vector<Bytes> sum(line_.devices().size());
  const Placement& training = placement(0, placements[0]);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const Placement& placed = placement(stage, placements[stage]);
    const bool aliases =
        stage == 1 && placed.stage.layout == training.stage.layout && !training.stage.offload;
    for (size_t i = 0; i < sum.size(); ++i) {
      const int rank = placed.ranks[i];
      if (rank < 0 || (aliases && training.ranks[i] == rank)) continue;
      sum[i] += placed.resident[rank];
    }
  }
  return sum;
}

bool Problem::fits_hosts(const Choice& placements) const {
  std::vector<Bytes> parked;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const Placement& placed = placement(stage, placements[stage]);
    if (placed.parked.empty()) continue;
    parked.resize(cluster_.hosts.size());
    for (size_t i = 0; i < placed.ranks.size(); ++i) {
      if (placed.ranks[i] < 0) continue;
      parked[size_t(line_.devices()[i].host)] += placed.parked[size_t(placed.ranks[i])];
    }
  }
  for (size_t host = 0; host < parked.size(); ++host) {
    if (parked[host] > cluster_.hosts[host].memory) return false;
  }
  return true;
}

Seconds Problem::total(std::span<const std::vector<Seconds>* const> passes, Seconds sync,
                       std::span<const StageSet> sharing) const {
  std::array<Seconds, Timeline::kMostNodes> times;
  std::ranges::copy(host_times_, times.begin());
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const std::vector<int>& nodes = stages_[stage].nodes;
    for (size_t i = 0; i < nodes.size(); ++i) times[nodes[i]] = (*passes[stage])[i];
  }
  for (int node : sync_nodes_) times[node] = sync * (1.0 / double(sync_nodes_.size()));
  return timeline_.total(times, sharing);
}

Plan Problem::plan(const Found& found) const {
  Plan plan;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const Placement& placed = placement(stage, found.placements[stage]);
    const Variant& variant = placed.variants[found.variants[stage]];
    plan.stages.push_back(placed.stage);
    plan.stages.back().micro_batch = variant.micro_batch;
    plan.stages.back().recompute = variant.recompute;
    plan.stages.back().waves = variant.waves;
  }
  std::ranges::sort(plan.stages, {}, &StagePlan::model_stage);
  return plan;
}

Candidate Problem::candidate(const Found& found) const {
  Plan plan = this->plan(found);
  verify(plan, pool(), job_);
  StepLatency latency = predict_step(plan, job_, cluster_, calibration_);
  return {std::move(plan), std::move(latency)};
}

Problem Problem::with_training(int tp, int pp) const {
  Problem problem = *this;
  std::erase_if(problem.stages_[0].placements, [&](const Placement& placed) {
    return placed.stage.layout.tp != tp || placed.stage.layout.pp != pp;
  });
  problem.sync_times_.assign(problem.stages_[0].placements.size() * stages_[1].placements.size(),
                             std::nullopt);
  return problem;
}

}  // namespace nereus
