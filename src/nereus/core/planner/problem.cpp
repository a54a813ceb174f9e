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
      begins_(line_, cluster_, options),
      calibration_(calibration),
      generation_weights_(summarize(state_schema(job_.models.at(Role::kActor), kGeneration))),
      timeline_(between_syncs(job_.workflow), search_order(job_.workflow)),
      host_times_(job_.workflow.nodes.size()) {
  for (ModelStage model_stage : search_order(job_.workflow)) {
    stages_.push_back(stage_candidates(model_stage, job_, cluster_, line_, begins_, calibration_,
                                       options, current));
  }
  for (size_t i = 0; i < host_times_.size(); ++i) {
    const WorkflowNode& node = job_.workflow.nodes[i];
    if (node.pass == Pass::kSyncWeights) sync_nodes_.push_back(static_cast<int>(i));
    if (node.pass != Pass::kReward && node.pass != Pass::kAdvantage) continue;
    host_times_[i] = predicted_time(ideal_node_work(node, {}, job_, cluster_), calibration_);
  }
}

bool Problem::share(const Setting& a, size_t place_a, const Setting& b, size_t place_b) const {
  const int begin_a = begins_.places()[place_a], begin_b = begins_.places()[place_b];
  const int first = std::max(begin_a, begin_b);
  const int end = std::min(begin_a + a.span(), begin_b + b.span());
  if (!a.has_gaps && !b.has_gaps) return first < end;
  for (int i = first; i < end; ++i) {
    if (a.footprint.ranks[size_t(i - begin_a)] >= 0 &&
        b.footprint.ranks[size_t(i - begin_b)] >= 0) {
      return true;
    }
  }
  return false;
}

// Whole hosts farther on nothing changes where hosts are alike; nor does it matter how far apart
// groups are that have no host in common, or none but one.
uint64_t Problem::sync_key(int training, int training_begin, int generation, int generation_begin,
                           int training_end, int generation_end) const {
  constexpr int kApart = 0x4000, kBeside = 0x8000;
  if (begins_.is_regular(std::max(training_end, generation_end))) {
    const int host = begins_.regular_host();
    const int first = std::max(training_begin, generation_begin);
    const int last = std::min(training_end, generation_end) - 1;
    const int shift = std::min(training_begin, generation_begin) / host * host;
    const bool in_one_host = std::max(training_end, generation_end) <= shift + host;
    if (first / host > last / host) {
      training_begin %= host;
      generation_begin = kApart + generation_begin % host;
    } else if (first > last && in_one_host) {
      training_begin = 0;
      generation_begin = kBeside;
    } else {
      training_begin -= shift;
      generation_begin -= shift;
    }
  }
  uint64_t key = 0;
  for (const int part : {training, generation, training_begin, generation_begin}) {
    key = key << 16U | uint64_t(part);
  }
  return key;
}

Seconds Problem::sync_time(int training, size_t training_place, int generation,
                           size_t generation_place) {
  const Placement& trains = placement(0, training);
  const Placement& generates = placement(1, generation);
  const int training_begin = begins_.places()[training_place];
  const int generation_begin = begins_.places()[generation_place];
  const uint64_t key = sync_key(training, training_begin, generation, generation_begin,
                                training_begin + trains.at(training_place)->span(),
                                generation_begin + generates.at(generation_place)->span());
  const auto [known, is_new] = sync_times_.emplace(key, Seconds());
  if (is_new) {
    const auto at = [&](const Placement& placed, int begin) {
      const StagePlan& front = placed.stage;
      return line_.place(front.model_stage, front.layout, int(front.units.size()), begin);
    };
    const Work work = sync_work(at(trains, training_begin), at(generates, generation_begin),
                                generation_weights_, cluster_);
    known->second = predicted_time(work, calibration_) * double(sync_nodes_.size());
  }
  return known->second;
}

Seconds Problem::least_sync_time(int training, int generation, bool shares) {
  const Placement& trains = placement(0, training);
  const Placement& generates = placement(1, generation);
  if (!shares) {
    // All weights travel, from hosts to others or within the only one.
    if (!begins_.whole_hosts() && begins_.regular_host() != devices()) return Seconds();
    const size_t next = begins_.at_or_after(trains.settings.front().span());
    const bool fits = next < begins_.places().size() && generates.at(next) != nullptr;
    return fits ? sync_time(training, 0, generation, next) : Seconds();
  }
  if (begins_.every()) return Seconds();
  const size_t places = begins_.whole_hosts() ? 1 : begins_.places().size();
  Seconds least = sync_time(training, 0, generation, 0);
  for (size_t place = 1; place < places; ++place) {
    if (trains.at(place) == nullptr || generates.at(place) == nullptr) continue;
    least = std::min(least, sync_time(training, place, generation, place));
  }
  return least;
}

std::vector<Bytes> Problem::resident(const Arrangement& arrangement) const {
  std::vector<Bytes> sum(line_.devices().size());
  const Placement& training = placement(0, arrangement.placements[0]);
  const std::vector<int16_t>& trained = setting(0, arrangement).footprint.ranks;
  const int training_begin = begins_.places()[size_t(arrangement.places[0])];
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const Placement& placed = placement(stage, arrangement.placements[stage]);
    const std::vector<int16_t>& ranks = setting(stage, arrangement).footprint.ranks;
    const int begin = begins_.places()[size_t(arrangement.places[stage])];
    const bool aliases =
        stage == 1 && placed.stage.layout == training.stage.layout && !training.stage.offload;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < 0) continue;
      const size_t in_training = size_t(begin - training_begin) + i;  // wraps round if before it
      if (aliases && in_training < trained.size() && trained[in_training] == ranks[i]) continue;
      sum[size_t(begin) + i] += placed.resident[size_t(ranks[i])];
    }
  }
  return sum;
}

bool Problem::fits_hosts(const Arrangement& arrangement) const {
  std::vector<Bytes> parked;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const Placement& placed = placement(stage, arrangement.placements[stage]);
    if (placed.parked.empty()) continue;
    parked.resize(cluster_.hosts.size());
    const std::vector<int16_t>& ranks = setting(stage, arrangement).footprint.ranks;
    const int begin = begins_.places()[size_t(arrangement.places[stage])];
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < 0) continue;
      const DeviceId device = line_.devices()[size_t(begin) + i];
      parked[size_t(device.host)] += placed.parked[size_t(ranks[i])];
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
    const StagePlan& front = placement(stage, found.arrangement.placements[stage]).stage;
    const int begin = begins_.places()[size_t(found.arrangement.places[stage])];
    const Variant& variant =
        setting(stage, found.arrangement).variants[size_t(found.variants[stage])];
    StagePlan& placed = plan.stages.emplace_back(
        line_.place(front.model_stage, front.layout, int(front.units.size()), begin));
    placed.offload = front.offload;
    placed.micro_batch = variant.micro_batch;
    placed.recompute = variant.recompute;
    placed.waves = variant.waves;
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
  problem.sync_times_.clear();
  return problem;
}

}  // namespace nereus
