#include "nereus/core/planner/arranging.h"

#include <algorithm>

namespace nereus {

Arranging::Arranging(Problem& problem, const Sharing& sharing, Bytes usable, const Ranking& ranking)
    : problem_(problem),
      sharing_(sharing),
      usable_(usable),
      ranking_(ranking),
      stages_(problem.stages().size()),
      places_(stages_),
      settings_(stages_),
      passes_(stages_) {}

std::optional<Found> Arranging::best(const Choice& placements, std::span<const PassTimes> passes,
                                     Seconds at_least, Ranking::Tie tie) {
  arrangement_ = {placements, Choice(stages_)};
  kind_ = Problem::kind(placement(kTraining), placement(kGeneration));
  least_ = passes;
  at_least_ = at_least;
  tie_ = tie;
  best_.reset();
  for (size_t stage = 0; stage < stages_; ++stage) places_[stage] = places_of(stage);
  descend(0, Seconds());
  return std::move(best_);
}

size_t Arranging::first_place(size_t stage, size_t from) const {
  const size_t places = problem_.begins().places().size();
  while (from < places && placement(stage).at(from) == nullptr) ++from;
  return from;
}

std::vector<size_t> Arranging::places_of(size_t stage) const {
  const size_t places = problem_.begins().places().size();
  if (!problem_.begins().every()) {
    std::set<size_t> reached;
    reach(stage, (StageSet{1} << stages_) - 1, 0, reached);
    return {reached.begin(), reached.end()};
  }
  std::vector<size_t> all;
  for (size_t place = 0; place < places; ++place) {
    if (placement(stage).at(place) != nullptr) all.push_back(place);
  }
  return all;
}

void Arranging::reach(size_t stage, StageSet left, size_t from, std::set<size_t>& places) const {
  const Begins& begins = problem_.begins();
  const size_t own = first_place(stage, from);
  if (own == begins.places().size()) return;
  places.insert(own);
  left &= ~(StageSet{1} << stage);
  for (size_t other = 0; other < stages_; ++other) {
    if ((left >> other & 1U) == 0) continue;
    const size_t place = first_place(other, from);
    if (place == begins.places().size()) continue;
    const int end = begins.places()[place] + placement(other).at(place)->span();
    reach(stage, left & ~(StageSet{1} << other), begins.at_or_after(end), places);
  }
}

void Arranging::descend(size_t stage, Seconds sync) {
  if (stage == stages_) return finish(sync);
  for (const size_t place : places_[stage]) {
    if (best_ && best_->total <= at_least_) return;
    const Setting& setting = *placement(stage).at(place);
    if (!may_begin(stage, place) || !shares_as_said(stage, place, setting)) continue;
    arrangement_.places[stage] = static_cast<int>(place);
    settings_[stage] = &setting;
    Seconds with_sync = sync;
    if (stage == kGeneration) {
      with_sync = problem_.sync_time(arrangement_.placements[kTraining],
                                     size_t(arrangement_.places[kTraining]),
                                     arrangement_.placements[kGeneration], place);
      if (useless(problem_.total(least_, with_sync, sharing_))) continue;
    }
    descend(stage + 1, with_sync);
  }
}

bool Arranging::may_begin(size_t stage, size_t place) const {
  const bool with_training = stage == kGeneration && (sharing_[kTraining] >> stage & 1U) != 0;
  return !with_training || problem_.begins().every() ||
         int(place) == arrangement_.places[kTraining];
}

bool Arranging::useless(Seconds at_least) const {
  return (best_ && at_least >= best_->total) || ranking_.useless(at_least, kind_, tie_);
}

bool Arranging::shares_as_said(size_t stage, size_t place, const Setting& setting) const {
  for (size_t other = 0; other < stage; ++other) {
    const bool shares =
        problem_.share(setting, place, *settings_[other], size_t(arrangement_.places[other]));
    if (shares != ((sharing_[stage] >> other & 1U) != 0)) return false;
  }
  return true;
}

void Arranging::finish(Seconds sync) {
  if (!problem_.fits_hosts(arrangement_)) return;
  std::vector<Bytes> resident;
  std::vector<std::vector<int>> variants(stages_);
  for (size_t stage = 0; stage < stages_; ++stage) {
    variants[stage] = fitting(stage, resident);
    if (variants[stage].empty()) return;
  }
  Choice chosen;
  choose_variants(variants, chosen, sync);
}

std::vector<int> Arranging::fitting(size_t stage, std::vector<Bytes>& resident) const {
  const std::vector<Variant>& variants = settings_[stage]->variants;
  Bytes most;  // resident on a device of this stage
  for (size_t other = 0; other < stages_; ++other) {
    if ((sharing_[stage] >> other & 1U) != 0) most += placement(other).most_resident;
  }
  std::vector<int> fitting;
  for (size_t v = 0; v < variants.size(); ++v) {
    const bool slower = std::ranges::any_of(fitting, [&](int faster) {
      return std::ranges::equal(variants[size_t(faster)].passes, variants[v].passes,
                                std::less_equal<>());
    });
    if (slower) continue;
    if (most + variants[v].most_transient > usable_) {
      if (resident.empty()) resident = problem_.resident(arrangement_);
      if (!fits(stage, variants[v], resident)) continue;
    }
    fitting.push_back(static_cast<int>(v));
  }
  return fitting;
}

bool Arranging::fits(size_t stage, const Variant& variant,
                     const std::vector<Bytes>& resident) const {
  const std::vector<int16_t>& ranks = settings_[stage]->footprint.ranks;
  const int begin = problem_.begins().places()[size_t(arrangement_.places[stage])];
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0) continue;
    if (resident[size_t(begin) + i] + variant.transient[size_t(ranks[i])] > usable_) return false;
  }
  return true;
}

void Arranging::choose_variants(const std::vector<std::vector<int>>& fitting, Choice& variants,
                                Seconds sync) {
  if (variants.size() < stages_) {
    for (const int variant : fitting[variants.size()]) {
      variants.push_back(variant);
      choose_variants(fitting, variants, sync);
      variants.pop_back();
    }
    return;
  }
  for (size_t stage = 0; stage < stages_; ++stage) {
    passes_[stage] = settings_[stage]->variants[size_t(variants[stage])].passes;
  }
  const Seconds total = problem_.total(passes_, sync, sharing_);
  if (!best_ || total < best_->total) best_ = {arrangement_, variants, total};
}

}  // namespace nereus
