#include "nereus/core/planner/candidates.h"

#include <algorithm>
#include <set>

#include "nereus/core/cost/shape.h"

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

// Powers of two; to training also every number of stages whose longest is shorter than with one
// stage fewer. A copy of its state is large, so that a few pipelines often have to use all devices;
// other model-stages use them by replicas, and need stages for memory only. The choice does not
// depend on the devices: a larger pool has all that a smaller one has.
std::vector<int> pipeline_sizes(int num_layers, bool trains) {
  std::vector<int> sizes;
  for (int pp = 1; pp <= num_layers; ++pp) {
    const bool shorter = pp > 1 && ceil_div(num_layers, pp) < ceil_div(num_layers, pp - 1);
    if (is_power_of_two(pp) || (trains && shorter)) sizes.push_back(pp);
  }
  return sizes;
}

// Where more units than this fit, pipelines of powers of two leave few devices idle; and units that
// lie across hosts in many ways take long to predict.
constexpr int kMostOddUnits = 8;

std::vector<Layout> layouts(const ModelSpec& spec, const DeviceLine& line, bool trains,
                            int most_zero) {
  std::vector<Layout> all;
  for (int tp : legal_tp(spec, line.largest_host())) {
    if (!is_power_of_two(tp)) continue;
    for (int pp : pipeline_sizes(spec.num_layers, trains)) {
      for (int zero : powers_of_two(trains ? most_zero : 1)) {
        const Layout layout{.tp = tp, .pp = pp, .zero = zero};
        if (line.most_units(layout) > 0) all.push_back(layout);
      }
    }
  }
  return all;
}

// What keeps the predictions of one model-stage together.
class Predictor {
 public:
  Predictor(ModelStage model_stage, const JobSpec& job, const Cluster& cluster,
            const DeviceLine& line, const Begins& begins, const Calibration& calibration,
            const PlannerOptions& options, const Plan* current)
      : model_stage_(model_stage),
        job_(job),
        cluster_(cluster),
        line_(line),
        begins_(begins),
        calibration_(calibration),
        options_(options),
        current_(current == nullptr ? nullptr : find(*current, model_stage)) {
    for (size_t i = 0; i < job.workflow.nodes.size(); ++i) {
      const WorkflowNode& node = job.workflow.nodes[i];
      const bool host = !runs_on_devices(node.pass);
      if (host || node.pass == Pass::kSyncWeights || node.runs_on != model_stage) continue;
      nodes_.push_back(static_cast<int>(i));
    }
  }

  StageCandidates all() const {
    StageCandidates candidates{model_stage_, nodes_, {}};
    const ModelSpec& spec = job_.model(model_stage_.role);
    const bool trains = model_stage_.stage == Stage::kTraining;
    for (Layout layout : layouts(spec, line_, trains, options_.most_zero)) {
      const StateElements elements = state_elements(spec, layout);
      for (int units : unit_numbers(layout)) {
        for (bool offload : {false, true}) {
          if (offload && !options_.allow_offload) continue;
          candidates.placements.push_back(placed(layout, units, offload, elements));
        }
      }
    }
    std::ranges::stable_sort(candidates.placements, {}, [](const Placement& placement) {
      return placement.settings.front().variants.front().time;
    });
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
  std::set<int> unit_numbers(Layout layout) const {
    const int zero = layout.zero;
    const auto feasible =
        static_cast<int>(std::min<int64_t>(line_.most_units(layout), sequences() / zero));
    const int most = is_power_of_two(layout.pp) ? feasible : std::min(feasible, kMostOddUnits);
    std::set<int> numbers;
    for (int units = 1; units <= most; ++units) {
      const int64_t share = ceil_div(sequences(), units * zero);
      const bool helps = units == 1 || share < ceil_div(sequences(), (units - 1) * zero);
      if (sequences() % (units * zero) == 0 || (helps && is_round(units))) numbers.insert(units);
    }
    if (current_ != nullptr && current_->layout == layout && current_->dp() <= feasible * zero) {
      numbers.insert(static_cast<int>(current_->units.size()));
    }
    return numbers;
  }

  // The micro-batches that make a difference to a unit with `own` sequences: those below, and the
  // smallest that holds them all. Generation has waves instead.
  std::vector<int> micro_batches(int64_t own) const {
    if (model_stage_.stage == Stage::kGeneration) return {};
    std::vector<int> sizes = allowed_micro_batches(options_, model_stage_.role);
    if (sizes.empty()) sizes = powers_of_two(job_.workload.mini_batch);
    // No micro-batch is larger than the batch.
    for (int& size : sizes) size = std::min(size, static_cast<int>(job_.workload.samples));
    std::ranges::sort(sizes);
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    const auto enough = std::ranges::find_if(sizes, [&](int size) { return size >= own; });
    if (enough != sizes.end()) sizes.erase(enough + 1, sizes.end());
    return sizes;
  }

  Placement placed(Layout layout, int units, bool offload, const StateElements& elements) const {
    Placement placement{.stage = line_.place(model_stage_, layout, units, 0)};
    placement.stage.offload = offload;
    for (const RankBytes& rank : rank_bytes(placement.stage, elements, job_, calibration_)) {
      placement.resident.push_back(rank.resident);
      if (offload) placement.parked.push_back(rank.parked);
    }
    placement.most_resident = std::ranges::max(placement.resident);
    std::map<int, int> in_host;  // of the regular part: the setting by position in the host
    for (int begin : begins_.places()) {
      const int position = line_.position_in_host(begin);
      const auto known = in_host.find(position);
      if (known != in_host.end() &&
          begins_.is_regular(begin + placement.settings[size_t(known->second)].span())) {
        placement.by_place.push_back(static_cast<int16_t>(known->second));
        continue;
      }
      const int setting = setting_at(begin, placement, elements);
      placement.by_place.push_back(static_cast<int16_t>(setting));
      if (setting >= 0) in_host.emplace(position, setting);
    }
    return placement;
  }

  // The index of the setting from `begin` on, a new one if need be; -1: it cannot begin there.
  int setting_at(int begin, Placement& placement, const StateElements& elements) const {
    const StagePlan& front = placement.stage;
    const int units = static_cast<int>(front.units.size());
    const bool leaves_out = line_.position_in_host(begin) % front.layout.tp != 0;
    if (begin + placement.devices() > line_.size() || (leaves_out && !begins_.every())) return -1;
    std::optional<Footprint> footprint = line_.footprint(front.layout, units, begin);
    if (!footprint) return -1;
    const bool regular = begins_.is_regular(begin + int(footprint->ranks.size()));
    std::vector<Setting>& settings = placement.settings;
    const auto alike = std::ranges::find_if(settings, [&](const Setting& other) {
      return regular && other.is_regular && other.footprint.by_host == footprint->by_host;
    });
    if (alike != settings.end() && alike->footprint == *footprint) {
      return static_cast<int>(alike - settings.begin());
    }
    const bool has_gaps = int(footprint->ranks.size()) > placement.devices();
    Setting setting{std::move(*footprint), has_gaps, regular, {}};
    setting.variants =
        alike != settings.end() ? alike->variants : variants_at(begin, front, elements);
    settings.push_back(std::move(setting));
    return static_cast<int>(settings.size()) - 1;
  }

  std::vector<Variant> variants_at(int begin, const StagePlan& front,
                                   const StateElements& elements) const {
    StagePlan stage =
        line_.place(model_stage_, front.layout, static_cast<int>(front.units.size()), begin);
    stage.offload = front.offload;
    const Site site = site_of(stage, elements, cluster_);
    const int64_t share = ceil_div(job_.workload.samples, stage.dp());
    std::vector<Variant> variants;
    if (model_stage_.stage == Stage::kGeneration) variants = waves(stage, site, share);
    for (int size : micro_batches(share)) {
      for (bool recompute : {false, true}) {
        const bool may = options_.allow_recompute && model_stage_.stage == Stage::kTraining;
        if (recompute && !may) continue;
        stage.micro_batch = size;
        stage.recompute = recompute;
        variants.push_back(variant(stage, site));
      }
    }
    keep_frontier(variants);
    return variants;
  }

  // All at once, in two waves, in four, …
  std::vector<Variant> waves(StagePlan stage, const Site& site, int64_t share) const {
    std::vector<Variant> variants;
    for (const int waves : powers_of_two(share)) {
      stage.waves = waves;
      variants.push_back(variant(stage, site));
    }
    return variants;
  }

  Variant variant(const StagePlan& stage, const Site& site) const {
    Variant variant{
        .micro_batch = stage.micro_batch, .waves = stage.waves, .recompute = stage.recompute};
    variant.is_current = current_ != nullptr && current_->layout == stage.layout &&
                         current_->dp() == stage.dp() && current_->recompute == stage.recompute &&
                         current_->micro_batch == stage.micro_batch &&
                         current_->waves == stage.waves && current_->offload == stage.offload;
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
  const Begins& begins_;
  const Calibration& calibration_;
  const PlannerOptions& options_;
  const StagePlan* current_;
  std::vector<int> nodes_;
};

}  // namespace

StageCandidates stage_candidates(ModelStage model_stage, const JobSpec& job, const Cluster& cluster,
                                 const DeviceLine& line, const Begins& begins,
                                 const Calibration& calibration, const PlannerOptions& options,
                                 const Plan* current) {
  return Predictor(model_stage, job, cluster, line, begins, calibration, options, current).all();
}

}  // namespace nereus
