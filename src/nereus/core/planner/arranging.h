// Where placements that are chosen already may begin, so that the step is as short as can be.
#pragma once

#include <optional>
#include <set>

#include "nereus/core/planner/ranking.h"
#include "nereus/core/planner/sharing.h"

namespace nereus {

// Tries all arrangements of one placement per model-stage in which exactly those share devices that
// `sharing` says.
class Arranging {
 public:
  Arranging(Problem& problem, const Sharing& sharing, Bytes usable, const Ranking& ranking);

  // The fastest that fits and is not useless, the first of equally fast ones. `passes`: by stage,
  // the times that its placement needs at least; `at_least`: what the whole step does, so that one
  // that takes no longer ends the matter; `tie`: at least.
  std::optional<Found> best(const Choice& placements, std::span<const PassTimes> passes,
                            Seconds at_least, Ranking::Tie tie);

 private:
  // The places at which a stage may begin, ascending.
  std::vector<size_t> places_of(size_t stage) const;
  // Those at which it may begin if the stages in `left` may still be set before it from there on.
  void reach(size_t stage, StageSet left, size_t from, std::set<size_t>& places) const;
  // The first place from `from` on at which a stage can begin, or the number of places.
  size_t first_place(size_t stage, size_t from) const;
  const Placement& placement(size_t stage) const {
    return problem_.placement(stage, arrangement_.placements[stage]);
  }

  void descend(size_t stage, Seconds sync);
  // Generation that shares devices with training begins where training does.
  bool may_begin(size_t stage, size_t place) const;
  bool shares_as_said(size_t stage, size_t place, const Setting& setting) const;
  bool useless(Seconds at_least) const;
  // With all stages in place.
  void finish(Seconds sync);
  // The variants of a stage that fit and are not slower than another in every pass.
  std::vector<int> fitting(size_t stage, std::vector<Bytes>& resident) const;
  bool fits(size_t stage, const Variant& variant, const std::vector<Bytes>& resident) const;
  // The fastest combination; there is rarely more than one.
  void choose_variants(const std::vector<std::vector<int>>& fitting, Choice& variants,
                       Seconds sync);

  Problem& problem_;
  const Sharing& sharing_;
  Bytes usable_;
  const Ranking& ranking_;
  size_t stages_;
  Ranking::Kind kind_;
  Arrangement arrangement_;
  std::vector<std::vector<size_t>> places_;
  std::vector<const Setting*> settings_;
  std::span<const PassTimes> least_;
  std::vector<PassTimes> passes_;
  Seconds at_least_;
  Ranking::Tie tie_;
  std::optional<Found> best_;
};

}  // namespace nereus
