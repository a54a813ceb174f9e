#include "nereus/core/planner/problem.h"

#include <algorithm>
#include <array>

#include "nereus/core/cost/weight_sync.h"

namespace nereus {
namespace {

std::vector<ModelStage> search_order(const Workflow& workflow) {
  std::vector<ModelStage> order{kActorTraining, kActorGeneration};
  for (ModelStage model_stage : model_stages(workflow)) {
    if (model_stage != kActorTraining && model_stage != kActorGeneration)
      order.push_back(model_stage);
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
      generation_weights_(summarize(state_schema(job_.models.at(Role::kActor), kActorGeneration))),
      timeline_(between_syncs(job_.workflow), search_order(job_.workflow)),
      host_times_(job_.workflow.nodes.size()) {
  for (ModelStage model_stage : search_order(job_.workflow)) {
    stages_.push_back(stage_candidates(model_stage, job_, cluster_, line_, begins_, calibration_,
                                       options, current));
  }
  for (size_t i = 0; i < host_times_.size(); ++i) {
    const WorkflowNode& node = job_.workflow.nodes[i];
    if (node.pass == Pass::kSyncWeights) sync_nodes_.push_back(static_cast<int>(i));
    if (runs_on_devices(node.pass)) continue;
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

// It does not matter how far apart groups are that have no host in common, or none but one; and
// where hosts are alike, nothing changes whole hosts farther on.
uint64_t Problem::sync_key(const Begin& training, const Begin& generation) const {
  constexpr int kApart = 0x4000, kBeside = 0x8000;
  const auto end = [](const Begin& begin) { return begin.position + begin.setting->span(); };
  const int first = std::max(training.position, generation.position);
  const int last = std::min(end(training), end(generation)) - 1;
  const int host = begins_.regular_host();
  const int shift = std::min(training.position, generation.position) / host * host;
  const bool regular = begins_.is_regular(std::max(end(training), end(generation)));
  std::array<int, 2> where = {training.position, generation.position};
  if (first - line_.position_in_host(first) > last) {
    where = {training.setting_index, kApart + generation.setting_index};
  } else if (regular && first > last && std::max(end(training), end(generation)) <= shift + host) {
    where = {0, kBeside};
  } else if (regular) {
    where = {training.position - shift, generation.position - shift};
  }
  uint64_t key = 0;
  for (const int part : {training.placement, generation.placement, where[0], where[1]}) {
    key = key << 16U | uint64_t(part);
  }
  return key;
}

Problem::Begin Problem::begin(size_t stage, int placement, size_t place) const {
  const Placement& placed = this->placement(stage, placement);
  return {placement, begins_.places()[place], placed.by_place[place], placed.at(place)};
}

Seconds Problem::sync_time(int training, size_t training_place, int generation,
                           size_t generation_place) {
  const Begin trains = begin(0, training, training_place);
  const Begin generates = begin(1, generation, generation_place);
  const auto [known, is_new] = sync_times_.emplace(sync_key(trains, generates), Seconds());
  if (is_new) {
    const auto at = [&](size_t stage, const Begin& begin) {
      const StagePlan& front = placement(stage, begin.placement).stage;
      return line_.place(front.model_stage, front.layout, int(front.units.size()), begin.position);
    };
    const Work work = sync_work(at(0, trains), at(1, generates), generation_weights_, cluster_);
    known->second = predicted_time(work, calibration_) * double(sync_nodes_.size());
  }
  return known->second;
}

Seconds Problem::least_sync_time(int training, int generation, bool shares) {
  const bool one_host = begins_.regular_host() == devices();
  if (!shares) {
    // All weights travel, from hosts to others or within the only one.
    return begins_.host_by_host() || one_host ? least_sync_apart(training, generation) : Seconds();
  }
  if (begins_.every()) return Seconds();
  const size_t places =
      begins_.host_by_host() && begins_.is_regular(devices()) ? 1 : begins_.places().size();
  Seconds least = sync_time(training, 0, generation, 0);
  for (size_t place = 1; place < places; ++place) {
    if (placement(0, training).at(place) == nullptr) continue;
    if (placement(1, generation).at(place) == nullptr) continue;
    least = std::min(least, sync_time(training, place, generation, place));
  }
  return least;
}

// Of every two settings, the first places that have them, in one order or the other.
Seconds Problem::least_sync_apart(int training, int generation) {
  const std::array<const Placement*, 2> both = {&placement(0, training), &placement(1, generation)};
  const size_t places = begins_.places().size();
  const auto first = [&](size_t stage, size_t setting, size_t from) {
    const std::vector<int16_t>& by_place = both[stage]->by_place;
    while (from < places && by_place[from] != int16_t(setting)) ++from;
    return from;
  };
  std::optional<Seconds> least;
  for (size_t trains = 0; trains < both[0]->settings.size(); ++trains) {
    for (size_t generates = 0; generates < both[1]->settings.size(); ++generates) {
      const std::array<size_t, 2> settings = {trains, generates};
      for (const size_t before : {0, 1}) {
        std::array<size_t, 2> at = {};
        at[before] = first(before, settings[before], 0);
        const int end =
            begins_.places()[at[before]] + both[before]->settings[settings[before]].span();
        at[1 - before] = first(1 - before, settings[1 - before], begins_.at_or_after(end));
        if (at[1 - before] == places) continue;
        const Seconds time = sync_time(training, at[0], generation, at[1]);
        least = std::min(least.value_or(time), time);
        break;
      }
    }
  }
  return least.value_or(Seconds());
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

Seconds Problem::total(std::span<const PassTimes> passes, Seconds sync,
                       std::span<const StageSet> sharing) const {
  std::array<Seconds, Timeline::kMostNodes> times;
  std::ranges::copy(host_times_, times.begin());
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const std::vector<int>& nodes = stages_[stage].nodes;
    for (size_t i = 0; i < nodes.size(); ++i) times[nodes[i]] = passes[stage][i];
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
