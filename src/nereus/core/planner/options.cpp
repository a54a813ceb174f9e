#include "nereus/core/planner/options.h"

namespace nereus {
namespace {

void lower(std::vector<Seconds>& least, const std::vector<Seconds>& passes) {
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

// `others`: what other stages hold at least on a device that all share.
Option option_of(const Problem& problem, size_t stage, int index, Bytes others, Bytes usable) {
  const Placement& placement = problem.placement(stage, index);
  const bool front = problem.begins().only_front();
  const int span = longest(placement);
  const auto on_shared = [&](const std::vector<Bytes>& by_rank) {
    if (front) return by_rank.front();
    return span > placement.devices() ? Bytes() : std::ranges::min(by_rank);
  };
  Option option{.placement = index,
                .devices = placement.devices(),
                .span = span,
                .held = on_shared(placement.resident),
                .tie = {.changes = 1, .devices = placement.stage.layout.devices()},
                .ways = {}};
  const Bytes held = stage == kGeneration ? Bytes() : option.held;
  for (const Setting& setting : placement.settings) {
    for (const Variant& variant : setting.variants) {
      const Bytes transient = on_shared(variant.transient);
      if (others + held + transient > usable) continue;
      if (!fits_alone(stage, placement, variant, usable)) continue;
      option.ways.push_back({variant.time, transient, variant.passes});
      if (variant.is_current) option.tie.changes = 0;
    }
  }
  std::ranges::stable_sort(option.ways, {}, &Option::Way::time);
  for (size_t way = option.ways.size(); way-- > 1;) {
    lower(option.ways[way - 1].least, option.ways[way].least);
  }
  return option;
}

StageOptions grouped(std::vector<Option> options, bool by_devices) {
  std::ranges::stable_sort(options, [&](const Option& a, const Option& b) {
    if (by_devices && a.devices != b.devices) return a.devices < b.devices;
    return a.ways.front().time < b.ways.front().time;
  });
  StageOptions stage;
  if (!options.empty()) stage.tie = options.front().tie;
  for (Option& option : options) {
    stage.tie.changes = std::min(stage.tie.changes, option.tie.changes);
    stage.tie.devices = std::min(stage.tie.devices, option.tie.devices);
    if (stage.groups.empty() || (by_devices && stage.groups.back().devices != option.devices)) {
      stage.groups.push_back({.devices = by_devices ? option.devices : 0});
    }
    lower(stage.groups.back().least, option.ways.front().least);
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
    std::vector<Option> options;
    for (size_t i = 0; i < count; ++i) {
      Option option = option_of(problem, stage, static_cast<int>(i), others, usable);
      if (!option.ways.empty()) options.push_back(std::move(option));
    }
    all[stage] = grouped(std::move(options), !front);
  }
  return all;
}

}  // namespace nereus
