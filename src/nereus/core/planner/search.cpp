#include "nereus/core/planner/search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "nereus/core/planner/side_options.h"

namespace nereus {
namespace {

// Times that differ by less are equal: the order of additions must not choose a plan.
int64_t nanoseconds(Seconds time) { return std::llround(time.count() * 1e9); }

// The best plans so far.
class Ranking {
 public:
  explicit Ranking(const SearchOptions& options) : options_(options) {}

  using Kind = decltype(Problem::kind({}, {}));

  // A plan that is certainly slower is of no use.
  bool useless(Seconds at_least) const { return at_least > limit_; }
  // Nor is one that is slower than another of its kind.
  bool useless(Seconds at_least, const Kind& kind) const {
    if (useless(at_least)) return true;
    const auto alike = std::ranges::find(ranked_, kind, &Ranked::kind);
    return alike != ranked_.end() && at_least > no_later(alike->key[0]);
  }

  void add(const Problem& problem, Found found) {
    std::array<int64_t, 3> key = {nanoseconds(found.total), 0, 0};
    for (size_t stage = 0; stage < found.placements.size(); ++stage) {
      const Placement& placement = problem.placement(stage, found.placements[stage]);
      key[1] += placement.variants[found.variants[stage]].is_current ? 0 : 1;
      key[2] += placement.stage.layout.devices();
    }
    const Kind kind = Problem::kind(problem.placement(kTraining, found.placements[kTraining]),
                                    problem.placement(kGeneration, found.placements[kGeneration]));
    Ranked ranked{key, kind, std::move(found)};
    const auto alike = std::ranges::find(ranked_, ranked.kind, &Ranked::kind);
    if (alike != ranked_.end()) {
      if (!before(ranked, *alike)) return;
      ranked_.erase(alike);
    }
    ranked_.insert(std::ranges::upper_bound(ranked_, ranked, before), std::move(ranked));
    const auto tolerated =
        static_cast<int64_t>(double(ranked_.front().key[0]) * (1 + options_.tolerance));
    while (full() > 0 || ranked_.back().key[0] > tolerated) ranked_.pop_back();
    const bool last_counts = full() == 0;
    limit_ = no_later(last_counts ? ranked_.back().key[0] : tolerated);
  }

  std::vector<Found> take() {
    std::vector<Found> found;
    for (Ranked& ranked : ranked_) found.push_back(std::move(ranked.found));
    return found;
  }

 private:
  struct Ranked {
    // Nanoseconds, stages that differ from the current plan, devices per unit.
    std::array<int64_t, 3> key;
    Kind kind;
    Found found;
  };
  static bool before(const Ranked& a, const Ranked& b) {
    return a.key != b.key ? a.key < b.key : a.found.placements < b.found.placements;
  }
  // Half a nanosecond for rounding.
  static Seconds no_later(int64_t nanoseconds) {
    return Seconds((double(nanoseconds) + 0.5) * 1e-9);
  }
  // By how many the list is too long; negative: there is room.
  int full() const { return static_cast<int>(ranked_.size()) - (options_.keep + 1); }

  const SearchOptions& options_;
  std::vector<Ranked> ranked_;
  Seconds limit_ = kNever;
};

// Plans that place stage i at the back where bit i of `back` is set, and at the front elsewhere.
class SideSearch {
 public:
  // `options` by side and stage.
  SideSearch(Problem& problem, StageSet back, Bytes usable,
             const std::array<std::vector<SideOptions>, 2>& options, Ranking& ranking)
      : problem_(problem),
        stages_(problem.stages().size()),
        back_(back),
        usable_(usable),
        ranking_(ranking),
        options_(options),
        chosen_(stages_),
        passes_(stages_),
        sharing_(stages_) {}

  // No plan is faster.
  Seconds bound() {
    for (size_t stage = 0; stage < stages_; ++stage) {
      if (at(stage).options.empty()) return kNever;
    }
    return critical_bound(0, Seconds());
  }

  void run() {
    for (std::vector<Completion>& side : completions_) side.resize(stages_ + 1);
    for (size_t stage = stages_; stage-- > 0;) {
      for (const Side each : {Side::kFront, Side::kBack}) {
        const Completion& rest = completions_[size_t(each)][stage + 1];
        completions_[size_t(each)][stage] =
            side(stage) != each || !at(stage).anchored
                ? rest
                : rest.with(at(stage).options, [&](const Option& option) {
                    return stage == kGeneration ? Bytes() : option.at_end;
                  });
      }
    }
    descend(0, Seconds());
  }

 private:
  Side side(size_t stage) const { return (back_ >> stage & 1) != 0 ? Side::kBack : Side::kFront; }
  const SideOptions& at(size_t stage) const { return options_[size_t(side(stage))][stage]; }

  void descend(size_t stage, Seconds sync) {
    if (stage == stages_) return finish(sync);
    const Completion none;
    const Completion& rest =
        at(stage).anchored ? completions_[size_t(side(stage))][stage + 1] : none;
    // What the chosen stages on this side take at least, and hold at the end of the line.
    const bool syncs = in_turn(stage, kTraining) || in_turn(stage, kGeneration);
    Seconds before = syncs ? sync : Seconds();
    Bytes held;
    for (size_t i = 0; i < stage; ++i) {
      if (!in_turn(i, stage)) continue;
      before += chosen_[i]->time;
      held += bytes_at_end(i);
    }
    for (const Option& option : at(stage).options) {
      if (useless(before + option.time + rest.least_time(), stage)) return;
      chosen_[stage] = &option;
      const Bytes with = held + bytes_at_end(stage);
      const Seconds after = rest.least_time(usable_ - with);
      const Seconds until = least_time(stage, usable_ - with - rest.least_bytes());
      if (useless(until + (syncs ? sync : Seconds()) + after, stage + 1)) continue;
      const Seconds with_sync =
          stage == kGeneration ? problem_.sync_time(chosen_[kTraining]->placement, option.placement)
                               : sync;
      if (stage == kGeneration && useless(before + option.time + with_sync + after, stage + 1)) {
        continue;
      }
      if (back_ != 0 && useless(critical_bound(stage + 1, with_sync), stage + 1)) continue;
      descend(stage + 1, with_sync);
    }
  }

  // With the first `count` stages as chosen.
  bool useless(Seconds at_least, size_t count) const {
    if (count <= kGeneration) return ranking_.useless(at_least);
    const auto placed = [&](size_t stage) -> const Placement& {
      return problem_.placement(stage, chosen_[stage]->placement);
    };
    return ranking_.useless(at_least, Problem::kind(placed(kTraining), placed(kGeneration)));
  }

  // Two stages that have the device at their end of the line in common, wherever they are placed.
  bool in_turn(size_t a, size_t b) const {
    return a == b || (side(a) == side(b) && at(a).anchored && at(b).anchored);
  }

  // Least time of the chosen stages in turn with `stage`, itself included, if their passes have so
  // many bytes at the end of the line; kNever if one does not fit.
  Seconds least_time(size_t stage, Bytes slack) const {
    Seconds sum;
    for (size_t i = 0; i <= stage; ++i) {
      if (!in_turn(i, stage)) continue;
      const Placement& placement = problem_.placement(i, chosen_[i]->placement);
      const int variant = fastest(placement, *chosen_[i], slack);
      if (variant < 0) return kNever;
      sum += placement.variants[variant].time;
    }
    return sum;
  }

  // What a chosen stage holds at its end of the line.
  Bytes bytes_at_end(size_t stage) const {
    const Option& option = *chosen_[stage];
    if (stage != kGeneration || option.end_rank < 0) return option.at_end;
    const Placement& generation = problem_.placement(stage, option.placement);
    const Placement& training = problem_.placement(kTraining, chosen_[kTraining]->placement);
    const int rank =
        generation.side == Side::kFront ? training.ranks.front() : training.ranks.back();
    const bool aliased = training.stage.layout == generation.stage.layout &&
                         !training.stage.offload && rank == option.end_rank;
    return aliased ? Bytes() : option.at_end;
  }

  // The critical path if the first `count` stages are as chosen and the others as fast as can be.
  Seconds critical_bound(size_t count, Seconds sync) {
    for (size_t i = 0; i < count; ++i) passes_[i] = &chosen_[i]->least;
    find_sharing(count);
    return open_bound(count, count, sync);
  }

  // An open stage either avoids the devices that the chosen ones take at the other side, or shares
  // one with the stage that takes the most. (Where hosts differ there may be gaps to share.)
  Seconds open_bound(size_t stage, size_t count, Seconds sync) {
    if (stage == stages_) return problem_.total(passes_, sync, sharing_);
    size_t opposite = stages_;
    for (size_t i = 0; i < count && problem_.is_regular(); ++i) {
      if (side(i) == side(stage)) continue;
      if (opposite == stages_ || chosen_[i]->devices > chosen_[opposite]->devices) opposite = i;
    }
    passes_[stage] = &at(stage).least.back().second;
    if (opposite == stages_) return open_bound(stage + 1, count, sync);
    sharing_[stage] |= StageSet{1} << opposite;
    sharing_[opposite] |= StageSet{1} << stage;
    const Seconds sharing = open_bound(stage + 1, count, sync);
    sharing_[stage] &= ~(StageSet{1} << opposite);
    sharing_[opposite] &= ~(StageSet{1} << stage);
    passes_[stage] = at(stage).least_within(problem_.devices() - chosen_[opposite]->devices);
    if (passes_[stage] == nullptr) return sharing;
    return std::min(sharing, open_bound(stage + 1, count, sync));
  }

  // Who certainly shares devices if the first `count` stages are as chosen.
  void find_sharing(size_t count) {
    for (size_t i = 0; i < stages_; ++i) {
      sharing_[i] = StageSet{1} << i;
      for (size_t j = 0; j < stages_; ++j) {
        if (certainly_share(i, j, count)) sharing_[i] |= StageSet{1} << j;
      }
    }
  }

  bool certainly_share(size_t a, size_t b, size_t count) const {
    if (in_turn(a, b)) return true;
    if (a >= count || b >= count) return false;
    return Problem::share(problem_.placement(a, chosen_[a]->placement),
                          problem_.placement(b, chosen_[b]->placement));
  }

  void finish(Seconds sync) {
    Choice placements;
    Bytes most;
    for (size_t i = 0; i < stages_; ++i) {
      placements.push_back(chosen_[i]->placement);
      most += problem_.placement(i, placements[i]).most_resident;
    }
    if (!problem_.fits_hosts(placements)) return;
    find_sharing(stages_);
    std::vector<Bytes> resident;
    std::vector<std::vector<int>> fitting(stages_);
    for (size_t i = 0; i < stages_; ++i) {
      const Placement& placement = problem_.placement(i, placements[i]);
      for (size_t v = chosen_[i]->first_variant; v < placement.variants.size(); ++v) {
        const Variant& variant = placement.variants[v];
        const bool slower = std::ranges::any_of(fitting[i], [&](int faster) {
          return std::ranges::equal(placement.variants[faster].passes, variant.passes,
                                    std::less_equal<>());
        });
        if (slower) continue;
        if (most + variant.most_transient > usable_) {
          if (resident.empty()) resident = problem_.resident(placements);
          if (!fits(placement, variant, resident)) continue;
        }
        fitting[i].push_back(static_cast<int>(v));
      }
      if (fitting[i].empty()) return;
    }
    Found found{.placements = std::move(placements), .variants = {}, .total = kNever};
    Choice variants;
    choose_variants(fitting, variants, sync, found);
    ranking_.add(problem_, std::move(found));
  }

  bool fits(const Placement& placement, const Variant& variant,
            const std::vector<Bytes>& resident) const {
    for (size_t i = 0; i < resident.size(); ++i) {
      const int rank = placement.ranks[i];
      if (rank >= 0 && resident[i] + variant.transient[rank] > usable_) return false;
    }
    return true;
  }

  // The fastest combination; there is rarely more than one.
  void choose_variants(const std::vector<std::vector<int>>& fitting, Choice& variants, Seconds sync,
                       Found& found) {
    if (variants.size() < stages_) {
      for (int variant : fitting[variants.size()]) {
        variants.push_back(variant);
        choose_variants(fitting, variants, sync, found);
        variants.pop_back();
      }
      return;
    }
    for (size_t i = 0; i < stages_; ++i) {
      passes_[i] = &problem_.placement(i, found.placements[i]).variants[variants[i]].passes;
    }
    const Seconds total = problem_.total(passes_, sync, sharing_);
    if (total < found.total) {
      found.total = total;
      found.variants = variants;
    }
  }

  Problem& problem_;
  size_t stages_;
  StageSet back_;
  Bytes usable_;
  Ranking& ranking_;
  const std::array<std::vector<SideOptions>, 2>& options_;
  // By side and stage: of this stage and the later ones on that side.
  std::array<std::vector<Completion>, 2> completions_;
  std::vector<const Option*> chosen_;
  std::vector<const std::vector<Seconds>*> passes_;  // by stage: their times
  std::vector<StageSet> sharing_;
};

}  // namespace

std::vector<Found> search(Problem& problem, const SearchOptions& options) {
  const size_t stages = problem.stages().size();
  Bytes all;  // of what all stages hold if they share a device
  for (size_t stage = 0; stage < stages; ++stage) all += least_at_end(problem, stage);
  std::array<std::vector<SideOptions>, 2> sides;
  for (size_t stage = 0; stage < stages; ++stage) {
    const Bytes others = options.side_by_side ? Bytes() : all - least_at_end(problem, stage);
    sides[0].push_back(side_options(problem, stage, Side::kFront, others, options.usable));
    if (!options.side_by_side) continue;
    sides[1].push_back(side_options(problem, stage, Side::kBack, others, options.usable));
  }
  Ranking ranking(options);
  // What is mirrored is the same plan, so training stays at the front. The most promising first.
  std::vector<std::pair<Seconds, StageSet>> order;
  for (StageSet back = 0; back < (options.side_by_side ? StageSet{1} << stages : 1); back += 2) {
    order.emplace_back(SideSearch(problem, back, options.usable, sides, ranking).bound(), back);
  }
  std::ranges::sort(order);
  for (const auto& [bound, back] : order) {
    if (bound == kNever || ranking.useless(bound)) break;
    SideSearch(problem, back, options.usable, sides, ranking).run();
  }
  return ranking.take();
}

SearchOptions search_options(const PlannerOptions& options, Bytes usable) {
  return {.usable = usable,
          .keep = options.keep,
          .tolerance = options.tolerance,
          .side_by_side = options.side_by_side};
}

}  // namespace nereus
