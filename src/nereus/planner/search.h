// Exact branch and bound over one placement per model-stage.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "nereus/planner/candidates.h"

namespace nereus {

struct Found {
  Plan plan;
  Seconds total;
};

// The fastest plans whose peak memory is at most `usable` on each device, best first: at most
// options.keep + 1, none slower than the best by more than options.tolerance. Empty: nothing fits.
// Every combination of placements is considered with the fastest variants that fit.
class Search {
 public:
  Search(const JobSpec& job, const Cluster& cluster, const DevicePool& pool,
         const Calibration& calibration, const PlannerOptions& options, const Plan* current);

  std::vector<Found> run(Bytes usable);

 private:
  // Placement indices chosen so far, by depth.
  struct Branch {
    std::vector<int> chosen;
    BytesPerDevice resident;
    Seconds time;  // of the chosen placements' fastest variants that can still fit, and of the sync
  };
  // What actor generation costs beside a given actor training.
  struct Together {
    BytesPerDevice resident;  // of generation, aliased weights left out
    Seconds sync;
  };
  struct Leaf {
    // Nanoseconds, stages that differ from the current plan, devices per unit: smaller is better.
    std::array<int64_t, 3> key;
    Found found;
  };

  void descend(const Branch& branch);
  void finish(const Branch& branch);
  const Together& together(int training, int generation);
  const Variant* fastest_fit(const Placement& placement, const BytesPerDevice& resident) const;
  int64_t worst_useful() const;

  const JobSpec& job_;
  const Cluster& cluster_;
  const DevicePool& pool_;
  const Calibration& calibration_;
  const PlannerOptions& options_;
  const Plan* current_;
  Bytes usable_;
  // Depth: actor training, actor generation, then the others.
  std::vector<ModelStage> order_;
  std::vector<std::vector<Placement>> placements_;
  std::vector<Seconds> rest_;  // least time of all deeper levels
  std::map<std::pair<int, int>, Together> together_;
  std::vector<Leaf> best_;
};

}  // namespace nereus
