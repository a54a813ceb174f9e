#include "nereus/planner/search.h"

#include <algorithm>
#include <cmath>

namespace nereus {
namespace {

constexpr ModelStage kTraining = {Role::kActor, Stage::kTraining};
constexpr ModelStage kGeneration = {Role::kActor, Stage::kGeneration};
constexpr size_t kGenerationDepth = 1;

// Times that differ by less are equal: the order of additions must not choose a plan.
int64_t nanoseconds(Seconds time) { return std::llround(time.count() * 1e9); }

void add_to(BytesPerDevice& sum, const BytesPerDevice& bytes) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += bytes[i];
}

int64_t changes(const Plan& plan, const Plan* current) {
  if (current == nullptr) return 0;
  return std::ranges::count_if(plan.stages, [&](const StagePlan& stage) {
    const StagePlan* now = find(*current, stage.model_stage);
    return now == nullptr || *now != stage;
  });
}

int64_t devices_per_unit(const Plan& plan) {
  int64_t sum = 0;
  for (const StagePlan& stage : plan.stages) sum += stage.layout.devices();
  return sum;
}

}  // namespace

Search::Search(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
               const Calibration& calibration, const PlannerOptions& options, const Plan* current)
    : job_(job),
      cluster_(cluster),
      pool_(pool),
      calibration_(calibration),
      options_(options),
      current_(current),
      order_{kTraining, kGeneration} {
  for (ModelStage model_stage : model_stages(job.workflow)) {
    if (model_stage != kTraining && model_stage != kGeneration) order_.push_back(model_stage);
  }
  for (ModelStage model_stage : order_) {
    placements_.push_back(
        placements(model_stage, job, cluster, pool, calibration, options, current));
  }
  rest_.resize(order_.size() + 1);
  for (size_t depth = order_.size(); depth-- > 0;) {
    if (placements_[depth].empty()) continue;
    rest_[depth] = rest_[depth + 1] + placements_[depth].front().variants.front().time;
  }
}

std::vector<Found> Search::run(Bytes usable) {
  usable_ = usable;
  best_.clear();
  descend({.chosen = {}, .resident = BytesPerDevice(pool_.devices().size()), .time = {}});
  std::vector<Found> found;
  for (Leaf& leaf : best_) found.push_back(std::move(leaf.found));
  return found;
}

void Search::descend(const Branch& branch) {
  const size_t depth = branch.chosen.size();
  if (depth == order_.size()) return finish(branch);
  // All placements share a device (see place()), so passes run one after the other and their sum is
  // a lower bound of the step.
  const auto too_slow = [&](Seconds time) {
    return nanoseconds(time + rest_[depth + 1]) > worst_useful();
  };
  for (size_t i = 0; i < placements_[depth].size(); ++i) {
    const Placement& placement = placements_[depth][i];
    if (too_slow(branch.time + placement.variants.front().time)) return;
    Branch next = branch;
    next.chosen.push_back(static_cast<int>(i));
    if (depth == kGenerationDepth) {
      const Together& pair = together(branch.chosen.front(), static_cast<int>(i));
      add_to(next.resident, pair.resident);
      next.time += pair.sync;
    } else {
      add_to(next.resident, placement.resident);
    }
    const Variant* variant = fastest_fit(placement, next.resident);
    if (variant == nullptr) continue;
    next.time += variant->time;
    if (!too_slow(next.time)) descend(next);
  }
}

void Search::finish(const Branch& branch) {
  Plan plan;
  for (size_t depth = 0; depth < order_.size(); ++depth) {
    const Variant* variant = fastest_fit(placements_[depth][branch.chosen[depth]], branch.resident);
    if (variant == nullptr) return;
    plan.stages.push_back(variant->stage);
  }
  std::ranges::sort(plan.stages, {}, &StagePlan::model_stage);
  const Seconds total = predict_step(plan, job_, cluster_, calibration_).total;
  if (nanoseconds(total) > worst_useful()) return;

  const std::array<int64_t, 3> key = {nanoseconds(total), changes(plan, current_),
                                      devices_per_unit(plan)};
  const auto place = std::ranges::upper_bound(best_, key, {}, &Leaf::key);
  best_.insert(place, {key, {std::move(plan), total}});
  while (static_cast<int>(best_.size()) > options_.keep + 1 ||
         best_.back().key[0] > worst_useful()) {
    best_.pop_back();
  }
}

const Search::Together& Search::together(int training, int generation) {
  const auto [entry, fresh] = together_.try_emplace({training, generation});
  if (!fresh) return entry->second;
  const Placement& trains = placements_[0][training];
  const Placement& generates = placements_[kGenerationDepth][generation];
  const Plan pair{{generates.variants.front().stage, trains.variants.front().stage}};

  Together& result = entry->second;
  result.resident = generates.resident;
  if (trains.layout == generates.layout) {
    const MemoryPrediction memory = predict_memory(pair, job_, calibration_);
    for (size_t i = 0; i < result.resident.size(); ++i) {
      const auto both = memory.resident.find(pool_.devices()[i]);
      if (both != memory.resident.end()) result.resident[i] = both->second - trains.resident[i];
    }
  }
  for (const WorkflowNode& node : job_.workflow.nodes) {
    if (node.pass != Pass::kSyncWeights) continue;
    result.sync += predicted_time(ideal_node_times(node, pair, job_, cluster_), calibration_);
  }
  return result;
}

const Variant* Search::fastest_fit(const Placement& placement,
                                   const BytesPerDevice& resident) const {
  const auto fits = [&](const Variant& variant) {
    for (size_t i = 0; i < resident.size(); ++i) {
      if (resident[i] + variant.transient[i] > usable_) return false;
    }
    return true;
  };
  const auto found = std::ranges::find_if(placement.variants, fits);
  return found == placement.variants.end() ? nullptr : &*found;
}

int64_t Search::worst_useful() const {
  if (best_.empty()) return std::numeric_limits<int64_t>::max();
  const auto tolerated = std::llround(double(best_.front().key[0]) * (1 + options_.tolerance));
  const bool full = static_cast<int>(best_.size()) > options_.keep;
  return full ? std::min<int64_t>(best_.back().key[0], tolerated) : tolerated;
}

}  // namespace nereus
