#include "nereus/core/planner/side_options.h"

namespace nereus {
namespace {

int end_rank(const Placement& placement) {
  return placement.side == Side::kFront ? placement.ranks.front() : placement.ranks.back();
}

void lower(std::vector<Seconds>& least, const std::vector<Seconds>& passes) {
  least.resize(passes.size(), kNever);
  for (size_t i = 0; i < passes.size(); ++i) least[i] = std::min(least[i], passes[i]);
}

// Weights that generation shares with training cost nothing.
Bytes resident_at_end(size_t stage, const Placement& placement) {
  const int rank = end_rank(placement);
  return rank < 0 || stage == kGeneration ? Bytes() : placement.resident[rank];
}

}  // namespace

int fastest(const Placement& placement, const Option& option, Bytes slack) {
  for (size_t i = option.first_variant; i < placement.variants.size(); ++i) {
    const Variant& variant = placement.variants[i];
    if (option.end_rank < 0 || variant.transient[option.end_rank] <= slack) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

Bytes least_at_end(const Problem& problem, size_t stage) {
  Bytes least(std::numeric_limits<int64_t>::max());
  for (const Placement& placement : problem.stages()[stage].placements) {
    least = std::min(least, resident_at_end(stage, placement));
  }
  return least;
}

SideOptions side_options(const Problem& problem, size_t stage, Side side, Bytes others,
                         Bytes usable) {
  const std::vector<Placement>& placements = problem.stages()[stage].placements;
  SideOptions found;
  for (size_t i = 0; i < placements.size(); ++i) {
    const Placement& placement = placements[i];
    if (placement.side != side) continue;
    Option option{.placement = static_cast<int>(i), .end_rank = end_rank(placement)};
    option.first_variant =
        fastest(placement, option, usable - others - resident_at_end(stage, placement));
    if (option.first_variant < 0) continue;
    option.time = placement.variants[option.first_variant].time;
    option.devices =
        side == Side::kFront ? placement.last + 1 : problem.devices() - placement.first;
    found.anchored = found.anchored && option.end_rank >= 0;
    if (option.end_rank >= 0) option.at_end = placement.resident[option.end_rank];
    for (size_t v = option.first_variant; v < placement.variants.size(); ++v) {
      lower(option.least, placement.variants[v].passes);
    }
    found.options.push_back(std::move(option));
  }
  std::ranges::stable_sort(found.options, {}, &Option::devices);
  std::vector<Seconds> least;
  for (const Option& option : found.options) {
    lower(least, option.least);
    if (!found.least.empty() && found.least.back().first == option.devices) found.least.pop_back();
    found.least.emplace_back(option.devices, least);
  }
  std::ranges::stable_sort(found.options, {}, &Option::time);
  return found;
}

}  // namespace nereus
