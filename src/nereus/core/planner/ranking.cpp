#include "nereus/core/planner/ranking.h"

#include <algorithm>
#include <cmath>

namespace nereus {
namespace {

// Times that differ by less are equal: the order of additions must not choose a plan.
int64_t nanoseconds(Seconds time) { return std::llround(time.count() * 1e9); }

// Half a nanosecond for rounding.
Seconds no_later(int64_t nanoseconds) { return Seconds((double(nanoseconds) + 0.5) * 1e-9); }

}  // namespace

bool Ranking::useless(Seconds at_least, const Kind& kind, Tie tie_at_least) const {
  if (useless(at_least)) return true;
  const auto alike = std::ranges::find(ranked_, kind, &Ranked::kind);
  if (alike == ranked_.end()) return false;
  const int64_t least = nanoseconds(at_least);
  return least > alike->nanoseconds || (least == alike->nanoseconds && tie_at_least >= alike->tie);
}

void Ranking::add(const Problem& problem, Found found) {
  Tie tie;
  const Choice& placements = found.arrangement.placements;
  for (size_t stage = 0; stage < placements.size(); ++stage) {
    const Setting& setting = problem.setting(stage, found.arrangement);
    tie.changes += setting.variants[size_t(found.variants[stage])].is_current ? 0 : 1;
    tie.devices += problem.placement(stage, placements[stage]).stage.layout.devices();
  }
  const Kind kind = Problem::kind(problem.placement(kTraining, placements[kTraining]),
                                  problem.placement(kGeneration, placements[kGeneration]));
  Ranked ranked{nanoseconds(found.total), tie, kind, std::move(found)};
  const auto alike = std::ranges::find(ranked_, ranked.kind, &Ranked::kind);
  if (alike != ranked_.end()) {
    if (!before(ranked, *alike)) return;
    ranked_.erase(alike);
  }
  ranked_.insert(std::ranges::upper_bound(ranked_, ranked, before), std::move(ranked));
  const auto tolerated =
      static_cast<int64_t>(double(ranked_.front().nanoseconds) * (1 + tolerance_));
  while (full() > 0 || ranked_.back().nanoseconds > tolerated) ranked_.pop_back();
  const bool last_counts = full() == 0;
  limit_ = no_later(last_counts ? ranked_.back().nanoseconds : tolerated);
}

std::vector<Found> Ranking::take() {
  std::vector<Found> found;
  for (Ranked& ranked : ranked_) found.push_back(std::move(ranked.found));
  return found;
}

}  // namespace nereus
