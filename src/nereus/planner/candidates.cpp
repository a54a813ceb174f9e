#include "nereus/planner/candidates.h"

#include <algorithm>
#include <set>

#include "nereus/cost/shape.h"

namespace nereus {
namespace {

bool is_power_of_two(int number) { return (number & (number - 1)) == 0; }

// At most three binary digits count: 1 … 8, 10, 12, 14, 16, 20, …
bool is_round(int number) {
  while (number > 7 && number % 2 == 0) number /= 2;
  return number <= 7;
}

std::vector<int> powers_of_two(int64_t limit) {
  std::vector<int> powers;
  for (int power = 1; power <= limit; power *= 2) powers.push_back(power);
  return powers;
}

std::vector<Layout> layouts(const ModelSpec& spec, const DeviceLine& line) {
  std::vector<Layout> all;
  for (int tp : legal_tp(spec, line.largest_host())) {
    if (!is_power_of_two(tp)) continue;
    for (int pp : powers_of_two(spec.num_layers)) {
      if (line.most_units({tp, pp}) > 0) all.push_back({tp, pp});
    }
  }
  return all;
}

// What keeps the predictions of one model-stage together.
class Predictor {
 public:
  Predictor(ModelStage model_stage, const JobSpec& job, const Cluster& cluster,
            const DeviceLine& line, const Calibration& calibration, const PlannerOptions& options,
            const Plan* current)
      : model_stage_(model_stage),
        job_(job),
        cluster_(cluster),
        line_(line),
        calibration_(calibration),
        options_(options),
        current_(current == nullptr ? nullptr : find(*current, model_stage)) {
    for (size_t i = 0; i < job.workflow.nodes.size(); ++i) {
      const WorkflowNode& node = job.workflow.nodes[i];
      const bool host = node.pass == Pass::kReward || node.pass == Pass::kAdvantage;
      if (host || node.pass == Pass::kSyncWeights || node.runs_on != model_stage) continue;
      nodes_.push_back(static_cast<int>(i));
    }
  }

  StageCandidates all() const {
    StageCandidates candidates{model_stage_, nodes_, {}};
    for (Layout layout : layouts(job_.model(model_stage_.role), line_)) {
      for (int dp : degrees(layout)) {
        candidates.placements.push_back(placement(layout, dp, Side::kFront));
        if (!options_.side_by_side) continue;
        Placement back = line_.is_symmetric(layout.devices())
                             ? mirrored(candidates.placements.back())
                             : placement(layout, dp, Side::kBack);
        // What takes the whole line is there already.
        if (!same_devices(candidates.placements.back(), back)) {
          candidates.placements.push_back(std::move(back));
        }
      }
    }
    std::ranges::stable_sort(candidates.placements, {},
                             [](const Placement& p) { return p.variants.front().time; });
    return candidates;
  }

 private:
  // The sequences that the replicas share: more replicas than that would idle.
  int64_t sequences() const {
    const bool trains = model_stage_.stage == Stage::kTraining;
    return trains ? job_.workload.mini_batch : job_.workload.samples;
  }

  // The numbers of units that shorten the fullest unit's share, thinned out where they get dense.
  // Whether one is there does not depend on the pool: a larger pool has all that a smaller one has.
  std::set<int> degrees(Layout layout) const {
    const auto most = static_cast<int>(std::min<int64_t>(line_.most_units(layout), sequences()));
    std::set<int> degrees;
    for (int dp = 1; dp <= most; ++dp) {
      const bool helps = dp == 1 || ceil_div(sequences(), dp) < ceil_div(sequences(), dp - 1);
      if (sequences() % dp == 0 || (helps && is_round(dp))) degrees.insert(dp);
    }
    if (current_ != nullptr && current_->layout == layout && current_->dp() <= most) {
      degrees.insert(current_->dp());
    }
    return degrees;
  }

  // The micro-batches that make a difference to a unit with `own` sequences: those below, and the
  // smallest that holds them all. To generation they do not matter.
  std::vector<int> micro_batches(int64_t own) const {
    if (model_stage_.stage == Stage::kGeneration) return {1};
    std::vector<int> sizes = options_.micro_batches;
    if (sizes.empty()) sizes = powers_of_two(job_.workload.mini_batch);
    // No micro-batch is larger than the batch.
    for (int& size : sizes) size = std::min(size, static_cast<int>(job_.workload.samples));
    std::ranges::sort(sizes);
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    const auto enough = std::ranges::find_if(sizes, [&](int size) { return size >= own; });
    if (enough != sizes.end()) sizes.erase(enough + 1, sizes.end());
    return sizes;
  }

  Placement placed(Layout layout, int dp, Side side) const {
    Placement placement{.stage = line_.place(model_stage_, layout, dp, side),
                        .side = side,
                        .ranks = line_.ranks(layout, dp, side)};
    const auto used = [](int rank) { return rank >= 0; };
    placement.first =
        static_cast<int>(std::ranges::find_if(placement.ranks, used) - placement.ranks.begin());
    placement.last = line_.size() - 1;
    while (!used(placement.ranks[placement.last])) --placement.last;
    return placement;
  }

  static bool same_devices(const Placement& a, const Placement& b) {
    return std::ranges::equal(a.ranks, b.ranks, [](int x, int y) { return (x < 0) == (y < 0); });
  }

  // Where both ends look alike: the same times and bytes at the other end of the line.
  Placement mirrored(const Placement& front) const {
    Placement back = placed(front.stage.layout, front.stage.dp(), Side::kBack);
    back.resident = front.resident;
    back.most_resident = front.most_resident;
    back.variants = front.variants;
    return back;
  }

  Placement placement(Layout layout, int dp, Side side) const {
    Placement placement = placed(layout, dp, side);
    const Site site = site_of(placement.stage, job_, cluster_);
    StagePlan stage = placement.stage;
    for (int size : micro_batches(ceil_div(job_.workload.samples, dp))) {
      for (bool recompute : {false, true}) {
        const bool may = options_.allow_recompute && model_stage_.stage == Stage::kTraining;
        if (recompute && !may) continue;
        stage.micro_batch = size;
        stage.recompute = recompute;
        placement.variants.push_back(variant(stage, site));
      }
    }
    keep_frontier(placement.variants);
    for (const RankBytes& rank : rank_bytes(stage, site.elements, job_, calibration_)) {
      placement.resident.push_back(rank.resident);
    }
    placement.most_resident = std::ranges::max(placement.resident);
    return placement;
  }

  Variant variant(const StagePlan& stage, const Site& site) const {
    Variant variant{.micro_batch = stage.micro_batch, .recompute = stage.recompute};
    variant.is_current = current_ != nullptr && current_->layout == stage.layout &&
                         current_->dp() == stage.dp() && current_->recompute == stage.recompute &&
                         current_->micro_batch == stage.micro_batch;
    for (int node : nodes_) {
      const Work work = ideal_pass_work(job_.workflow.nodes[node], stage, site, job_, cluster_);
      variant.passes.push_back(predicted_time(work, calibration_));
      variant.time += variant.passes.back();
    }
    for (const RankBytes& rank : rank_bytes(stage, site.elements, job_, calibration_)) {
      variant.transient.push_back(rank.passing);
    }
    variant.most_transient = std::ranges::max(variant.transient);
    return variant;
  }

  // Fastest first, and of equally fast ones that of the current plan; a slower one stays only if it
  // needs less memory somewhere.
  static void keep_frontier(std::vector<Variant>& variants) {
    std::ranges::stable_sort(variants, [&](const Variant& a, const Variant& b) {
      return a.time != b.time ? a.time < b.time : a.is_current && !b.is_current;
    });
    std::vector<Variant> frontier;
    for (Variant& variant : variants) {
      const bool dominated = std::ranges::any_of(frontier, [&](const Variant& faster) {
        return std::ranges::equal(faster.transient, variant.transient, std::less_equal<>()) &&
               std::ranges::equal(faster.passes, variant.passes, std::less_equal<>());
      });
      if (!dominated) frontier.push_back(std::move(variant));
    }
    variants = std::move(frontier);
  }

  ModelStage model_stage_;
  const JobSpec& job_;
  const Cluster& cluster_;
  const DeviceLine& line_;
  const Calibration& calibration_;
  const PlannerOptions& options_;
  const StagePlan* current_;
  std::vector<int> nodes_;
};

}  // namespace

StageCandidates stage_candidates(ModelStage model_stage, const JobSpec& job, const Cluster& cluster,
                                 const DeviceLine& line, const Calibration& calibration,
                                 const PlannerOptions& options, const Plan* current) {
  return Predictor(model_stage, job, cluster, line, calibration, options, current).all();
}

}  // namespace nereus
