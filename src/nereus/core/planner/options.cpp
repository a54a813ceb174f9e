#include "nereus/core/planner/options.h"

#include <tuple>

namespace nereus {
namespace {

void lower(std::vector<Seconds>& least, PassTimes passes) {
  least.resize(passes.size(), kNever);
  for (size_t i = 0; i < passes.size(); ++i) least[i] = std::min(least[i], passes[i]);
}

int longest(const Placement& placement) {
  int longest = 0;
  for (const Setting& setting : placement.settings) longest = std::max(longest, setting.span());
  return longest;
}

// A rank's resident bytes and a way's transient ones fit where nobody else is. Weights that
// generation shares with training may cost nothing.
bool fits_alone(size_t stage, const Placement& placement, const Variant& variant, Bytes usable) {
  if (placement.most_resident + variant.most_transient <= usable) return true;
  for (size_t rank = 0; rank < placement.resident.size(); ++rank) {
    const Bytes resident = stage == kGeneration ? Bytes() : placement.resident[rank];
    if (resident + variant.transient[rank] > usable) return false;
  }
  return true;
}

// What a stage holds at least at the front.
Bytes least_at_front(const Problem& problem, size_t stage) {
  if (stage == kGeneration) return Bytes();
  Bytes least(std::numeric_limits<int64_t>::max());
  for (const Placement& placement : problem.stages()[stage].placements) {
    least = std::min(least, placement.resident.front());
  }
  return least;
}

// Makes the options of a stage, one after the other.
class OptionMaker {
 public:
  // `others`: what other stages hold at least on a device that all share.
  OptionMaker(const Problem& problem, size_t stage, Bytes others, Bytes usable)
      : problem_(problem),
        stage_(stage),
        others_(others),
        usable_(usable),
        front_(problem.begins().only_front()) {}

  // Without ways if the placement cannot be part of a plan that fits.
  Option make(int index) {
    const Placement& placement = problem_.placement(stage_, index);
    Option option{.placement = index,
                  .devices = placement.devices(),
                  .span = longest(placement),
                  .held = {},
                  .tie = {.changes = 1, .devices = placement.stage.layout.devices()},
                  .ways = {},
                  .times = {}};
    const bool gaps = option.has_gaps();
    option.held = on_shared(placement.resident, gaps);
    const Bytes held = stage_ == kGeneration ? Bytes() : option.held;
    fitting_.clear();
    for (const Setting& setting : placement.settings) {
      for (const Variant& variant : setting.variants) {
        const Bytes transient = on_shared(variant.transient, gaps);
        if (others_ + held + transient > usable_) continue;
        if (!fits_alone(stage_, placement, variant, usable_)) continue;
        fitting_.push_back({&variant, transient});
        if (variant.is_current) option.tie.changes = 0;
      }
    }
    choose_ways(option);
    return option;
  }

 private:
  struct Fitting {
    const Variant* variant;
    Bytes transient;  // as Option::Way's
  };

  Bytes on_shared(const std::vector<Bytes>& by_rank, bool gaps) const {
    if (front_) return by_rank.front();
    return gaps ? Bytes() : std::ranges::min(by_rank);
  }

  // Those that need less than all faster ones: no other is ever the fastest that fits.
  void choose_ways(Option& option) {
    const auto time = [](const Fitting& fitting) { return fitting.variant->time; };
    if (!std::ranges::is_sorted(fitting_, {}, time)) std::ranges::stable_sort(fitting_, {}, time);
    chosen_.clear();
    for (size_t i = 0; i < fitting_.size(); ++i) {
      if (i > 0 && fitting_[i].transient >= fitting_[chosen_.back()].transient) continue;
      chosen_.push_back(i);
    }
    if (chosen_.empty()) return;
    const size_t passes = fitting_.front().variant->passes.size();
    option.ways.resize(chosen_.size());
    option.times.resize(chosen_.size() * passes);
    least_.assign(passes, kNever);
    for (size_t i = fitting_.size(), way = chosen_.size(); i-- > 0;) {
      const PassTimes times = fitting_[i].variant->passes;
      for (size_t pass = 0; pass < passes; ++pass)
        least_[pass] = std::min(least_[pass], times[pass]);
      if (way == 0 || i != chosen_[way - 1]) continue;
      option.ways[--way] = {fitting_[i].variant->time, fitting_[i].transient};
      std::ranges::copy(least_, option.times.begin() + std::ptrdiff_t(way * passes));
    }
  }

  const Problem& problem_;
  size_t stage_;
  Bytes others_;
  Bytes usable_;
  bool front_;  // all begin there
  // Of the option in the making; kept so that their memory is.
  std::vector<Fitting> fitting_;
  std::vector<size_t> chosen_;
  std::vector<Seconds> least_;
};

StageOptions grouped(std::vector<Option> unordered, bool by_devices) {
  // Options are sorted by small keys and moved once.
  std::vector<std::tuple<int, Seconds, size_t>> order;
  order.reserve(unordered.size());
  for (size_t i = 0; i < unordered.size(); ++i) {
    const Option& option = unordered[i];
    order.emplace_back(by_devices ? option.devices : 0, option.ways.front().time, i);
  }
  std::ranges::sort(order);
  StageOptions stage;
  if (!unordered.empty()) stage.tie = unordered.front().tie;
  for (const auto& [devices, time, index] : order) {
    Option& option = unordered[index];
    stage.tie.changes = std::min(stage.tie.changes, option.tie.changes);
    stage.tie.devices = std::min(stage.tie.devices, option.tie.devices);
    if (stage.groups.empty() || stage.groups.back().devices != devices) {
      stage.groups.push_back({.devices = devices});
    }
    lower(stage.groups.back().least, option.least(0));
    stage.groups.back().options.push_back(std::move(option));
  }
  std::vector<Seconds> within;
  for (OptionGroup& group : stage.groups) {
    lower(within, group.least);
    group.within = within;
  }
  return stage;
}

}  // namespace

int Option::fastest(Bytes slack) const {
  const auto fits = [&](const Way& way) { return way.transient <= slack; };
  const auto found = std::ranges::find_if(ways, fits);
  return found == ways.end() ? -1 : static_cast<int>(found - ways.begin());
}

std::vector<StageOptions> stage_options(const Problem& problem, Bytes usable) {
  std::vector<StageOptions> all(problem.stages().size());
  Bytes at_front;
  for (size_t stage = 0; stage < all.size(); ++stage) at_front += least_at_front(problem, stage);
  const bool front = problem.begins().only_front();
  for (size_t stage = 0; stage < all.size(); ++stage) {
    const size_t count = problem.stages()[stage].placements.size();
    const Bytes others = front ? at_front - least_at_front(problem, stage) : Bytes();
    OptionMaker maker(problem, stage, others, usable);
    std::vector<Option> options;
    options.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      Option option = maker.make(static_cast<int>(i));
      if (!option.ways.empty()) options.push_back(std::move(option));
    }
    all[stage] = grouped(std::move(options), !front);
  }
  return all;
}

}  // namespace nereus
