#include "nereus/core/planner/search.h"

#include <algorithm>

#include "nereus/core/planner/arranging.h"
#include "nereus/core/planner/geometry.h"
#include "nereus/core/planner/options.h"

namespace nereus {
namespace {

// Plans in which exactly those model-stages share devices that `sharing` says.
class SharedSearch {
 public:
  SharedSearch(Problem& problem, const Sharing& sharing, Bytes usable,
               const std::vector<StageOptions>& options, bool gaps, Ranking& ranking)
      : problem_(problem),
        sharing_(sharing),
        stages_(sharing.size()),
        usable_(usable),
        options_(options),
        gaps_(gaps),
        ranking_(ranking),
        all_together_(sharing == together(stages_)),
        chosen_(stages_),
        ways_(stages_),
        devices_(stages_),
        passes_(stages_),
        most_devices_(stages_, problem.devices()),
        order_(stages_) {
    for (const StageSet set : cliques(sharing)) in_turn_.push_back({set, {}});
    for (const StageSet set : cliques(apart(sharing))) apart_.push_back(set);
  }

  // No plan is faster.
  Seconds bound() {
    for (const StageOptions& stage : options_) {
      if (stage.groups.empty()) return kNever;
    }
    return critical_bound(0, Seconds());
  }

  void run() {
    for (Clique& clique : in_turn_) {
      clique.rest.resize(stages_ + 1);
      for (size_t stage = stages_; stage-- > 0;) {
        clique.rest[stage] = clique.rest[stage + 1];
        if (!has(clique.members, stage)) continue;
        clique.rest[stage] = clique.rest[stage + 1].with(
            options_[stage],
            [&](const Option& option) { return stage == kGeneration ? Bytes() : option.held; });
      }
    }
    if (!gaps_ && !all_together_) geometry_.emplace(sharing_, same_begin());
    arranging_.emplace(problem_, sharing_, usable_, ranking_);
    descend(0, Seconds());
  }

 private:
  // Model-stages that run one after the other: all share with all others. They share a device all
  // together, so that their bytes add up.
  struct Clique {
    StageSet members = 0;
    std::vector<Completion> rest;  // by stage: of this member and the later ones

    bool syncs() const { return has(members, kTraining) || has(members, kGeneration); }
  };
  static bool has(StageSet set, size_t stage) { return (set >> stage & 1U) != 0; }

  // The most promising devices first.
  void descend(size_t stage, Seconds sync) {
    if (stage == stages_) return finish(sync);
    std::vector<std::pair<Seconds, const OptionGroup*>>& order = order_[stage];
    order.clear();
    choose_ways(stage);
    for (const OptionGroup& group : options_[stage].groups) {
      if (!has_room(stage, group.devices)) continue;
      devices_[stage] = group.devices;
      passes_[stage] = group.least;
      const Seconds bound =
          options_[stage].groups.size() == 1 ? Seconds() : critical_bound(stage + 1, sync);
      if (!useless(bound, stage)) order.emplace_back(bound, &group);
    }
    std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
    for (const auto& [bound, group] : order) {
      if (useless(bound, stage)) return;
      devices_[stage] = group->devices;
      if (!can_lie(stage)) continue;
      for (const Option& option : group->options) {
        if (useless(time_before(stage, sync, option), stage)) break;
        chosen_[stage] = &option;
        consider(stage, sync);
      }
    }
  }

  // With an option of this stage, too.
  void consider(size_t stage, Seconds sync) {
    if (!choose_ways(stage + 1) || useless(time_with(stage, sync), stage + 1)) return;
    if (!all_together_ && useless(critical_bound(stage + 1, sync), stage + 1)) return;
    if (stage == kGeneration) {
      sync = problem_.least_sync_time(chosen_[kTraining]->placement, chosen_[stage]->placement,
                                      has(sharing_[kTraining], kGeneration));
      if (useless(time_with(stage, sync), stage + 1)) return;
      if (!all_together_ && useless(critical_bound(stage + 1, sync), stage + 1)) return;
    }
    descend(stage + 1, sync);
  }

  // Generation that shares devices with training begins where training does.
  StageSet same_begin() const {
    const bool shares = has(sharing_[kTraining], kGeneration) && !problem_.begins().every();
    return shares ? StageSet{1} << kTraining | StageSet{1} << kGeneration : 0;
  }

  // Whether the groups of the stages up to this one may be there together.
  bool can_lie(size_t stage) {
    if (!geometry_ || stage == 0) return true;
    for (size_t i = 0; i < stages_; ++i) {
      if (i > stage) devices_[i] = options_[i].fewest_devices();
      most_devices_[i] = i > stage ? problem_.devices() : devices_[i];
    }
    return geometry_->possible(devices_, most_devices_, problem_.devices());
  }

  // With the first `count` stages as chosen.
  bool useless(Seconds at_least, size_t count) const {
    if (count <= kGeneration) return ranking_.useless(at_least);
    return ranking_.useless(at_least, Problem::kind(placement(kTraining), placement(kGeneration)),
                            tie(count));
  }

  Ranking::Tie tie(size_t count) const {
    Ranking::Tie sum;
    for (size_t i = 0; i < stages_; ++i) {
      const Ranking::Tie& least = i < count ? chosen_[i]->tie : options_[i].tie;
      sum.changes += least.changes;
      sum.devices += least.devices;
    }
    return sum;
  }

  const Placement& placement(size_t stage) const {
    return problem_.placement(stage, chosen_[stage]->placement);
  }

  // What the model-stages in turn with `stage` take at least if it has `option`, or one after it.
  Seconds time_before(size_t stage, Seconds sync, const Option& option) const {
    Seconds longest;
    for (const Clique& clique : in_turn_) {
      if (!has(clique.members, stage)) continue;
      Seconds sum = option.ways.front().time + clique.rest[stage + 1].least_time();
      if (clique.syncs()) sum += sync;
      for (size_t i = 0; i < stage; ++i) {
        if (has(clique.members, i)) sum += chosen_[i]->ways.front().time;
      }
      longest = std::max(longest, sum);
    }
    return longest;
  }

  // The same of what is chosen up to `stage`, in the ways that fit.
  Seconds time_with(size_t stage, Seconds sync) const {
    Seconds longest;
    for (const Clique& clique : in_turn_) {
      if (!has(clique.members, stage)) continue;
      Seconds sum = clique.rest[stage + 1].least_time(usable_ - held(clique, stage + 1));
      if (clique.syncs()) sum += sync;
      for (size_t i = 0; i <= stage; ++i) {
        if (has(clique.members, i)) sum += chosen_[i]->ways[ways_[i]].time;
      }
      longest = std::max(longest, sum);
    }
    return longest;
  }

  // Those that share nothing need devices of their own.
  bool has_room(size_t stage, int devices) const {
    return std::ranges::all_of(apart_, [&](StageSet set) {
      return !has(set, stage) || devices <= room(set, stage, stage);
    });
  }

  // What a set of stages apart leaves to one of them, given the devices of the first `count`.
  int room(StageSet set, size_t stage, size_t count) const {
    int left = problem_.devices();
    for (size_t i = 0; i < stages_; ++i) {
      if (i == stage || !has(set, i)) continue;
      left -= i < count ? devices_[i] : options_[i].fewest_devices();
    }
    return left;
  }

  // What the first `count` stages hold at least on the device that a clique shares.
  Bytes held(const Clique& clique, size_t count) const {
    Bytes sum;
    for (size_t i = 0; i < count; ++i) {
      if (has(clique.members, i)) sum += held(i);
    }
    return sum;
  }

  Bytes held(size_t stage) const {
    if (stage != kGeneration || !has(sharing_[kTraining], kGeneration)) {
      return chosen_[stage]->held;
    }
    const StagePlan& training = placement(kTraining).stage;
    const bool may_alias =
        training.layout == placement(kGeneration).stage.layout && !training.offload;
    return may_alias ? Bytes() : chosen_[stage]->held;
  }

  // The fastest way of each of the first `count` stages that leaves room for what all hold that
  // share a device with it, and so their passes; false if there is none.
  bool choose_ways(size_t count) {
    std::ranges::fill(ways_, 0);
    for (size_t stage = 0; stage < count; ++stage) {
      for (const Clique& clique : in_turn_) {
        if (!has(clique.members, stage)) continue;
        const Bytes slack = usable_ - held(clique, count) - clique.rest[count].least_bytes();
        const int way = chosen_[stage]->fastest(slack);
        if (way < 0) return false;
        ways_[stage] = std::max(ways_[stage], size_t(way));
      }
      passes_[stage] = chosen_[stage]->least(ways_[stage]);
    }
    return true;
  }

  // The critical path if the first `count` stages have these devices and passes, and the others are
  // as fast as can be.
  Seconds critical_bound(size_t count, Seconds sync) {
    for (size_t stage = count; stage < stages_; ++stage) {
      passes_[stage] = least_passes(stage, count);
      if (passes_[stage].empty()) return kNever;
    }
    return problem_.total(passes_, sync, sharing_);
  }

  // Of an open stage on the devices that are left to it; empty: there are too few.
  PassTimes least_passes(size_t stage, size_t count) const {
    int devices = problem_.devices();
    for (const StageSet set : apart_) {
      if (has(set, stage)) devices = std::min(devices, room(set, stage, count));
    }
    return options_[stage].least_within(devices);
  }

  void finish(Seconds sync) {
    Choice placements;
    for (const Option* option : chosen_) placements.push_back(option->placement);
    const Seconds at_least = critical_bound(stages_, sync);
    std::optional<Found> found = arranging_->best(placements, passes_, at_least, tie(stages_));
    if (found) ranking_.add(problem_, std::move(*found));
  }

  Problem& problem_;
  const Sharing& sharing_;
  size_t stages_;
  Bytes usable_;
  const std::vector<StageOptions>& options_;
  bool gaps_;  // groups may leave devices to others
  Ranking& ranking_;
  bool all_together_;
  std::vector<Clique> in_turn_;
  std::vector<StageSet> apart_;       // the largest sets of stages none of which share
  std::optional<Geometry> geometry_;  // none: all share, or there may be gaps
  std::optional<Arranging> arranging_;
  std::vector<const Option*> chosen_;
  // By stage: which of its option's ways, how many devices, the times of its passes.
  std::vector<size_t> ways_;
  std::vector<int> devices_;
  std::vector<PassTimes> passes_;
  std::vector<int> most_devices_;
  std::vector<std::vector<std::pair<Seconds, const OptionGroup*>>> order_;  // while it is chosen
};

bool may_leave_gaps(const Problem& problem) {
  return std::ranges::any_of(problem.stages(), [](const StageCandidates& stage) {
    return std::ranges::any_of(stage.placements, [](const Placement& placement) {
      return std::ranges::any_of(placement.settings, &Setting::has_gaps);
    });
  });
}

}  // namespace

std::vector<Found> search(Problem& problem, const SearchOptions& options) {
  const size_t stages = problem.stages().size();
  const std::vector<StageOptions> choices = stage_options(problem, options.usable);
  const bool gaps = may_leave_gaps(problem);
  Ranking ranking(options.keep, options.tolerance);
  const std::vector<Sharing> sharings = problem.begins().only_front()
                                            ? std::vector<Sharing>{together(stages)}
                                            : all_sharings(stages, gaps);
  // What shares all devices is found at once. Then the most promising first.
  std::vector<std::pair<Seconds, const Sharing*>> order;
  for (const Sharing& sharing : sharings) {
    SharedSearch search(problem, sharing, options.usable, choices, gaps, ranking);
    order.emplace_back(&sharing == &sharings.front() ? Seconds() : search.bound(), &sharing);
  }
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [bound, sharing] : order) {
    if (bound == kNever || ranking.useless(bound)) break;
    SharedSearch(problem, *sharing, options.usable, choices, gaps, ranking).run();
  }
  return ranking.take();
}

SearchOptions search_options(const PlannerOptions& options, Bytes usable) {
  return {.usable = usable, .keep = options.keep, .tolerance = options.tolerance};
}

}  // namespace nereus
