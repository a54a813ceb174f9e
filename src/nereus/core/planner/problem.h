// What the planner has to solve: the candidates of all model-stages and what couples them.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "nereus/core/planner/candidates.h"
#include "nereus/core/planner/timeline.h"
#include "nereus/core/state/overlap.h"

namespace nereus {

// By model-stage, in the order of Problem::stages(): indices of its placements, of the places where
// they begin, or of the variants of their settings there.
using Choice = std::vector<int>;

// What the passes of a model-stage take, in the order of StageCandidates::nodes.
using PassTimes = std::span<const Seconds>;

// Where all model-stages are.
struct Arrangement {
  Choice placements;
  Choice places;
  auto operator<=>(const Arrangement&) const = default;
};

struct Found {
  Arrangement arrangement;
  Choice variants;
  Seconds total;
};

class Problem {
 public:
  Problem(JobSpec job, Cluster cluster, const DevicePool& pool, const Calibration& calibration,
          const PlannerOptions& options, const Plan* current);

  // Actor training, actor generation, then the others.
  const std::vector<StageCandidates>& stages() const { return stages_; }
  const Placement& placement(size_t stage, int index) const {
    return stages_[stage].placements[index];
  }
  const JobSpec& job() const { return job_; }
  const Cluster& cluster() const { return cluster_; }
  const Calibration& calibration() const { return calibration_; }
  DevicePool pool() const { return DevicePool(line_.devices()); }
  int devices() const { return line_.size(); }
  const Begins& begins() const { return begins_; }
  // The setting of a model-stage in an arrangement.
  const Setting& setting(size_t stage, const Arrangement& arrangement) const {
    return *placement(stage, arrangement.placements[stage]).at(size_t(arrangement.places[stage]));
  }

  // True if two settings that begin at these places have a device in common.
  bool share(const Setting& a, size_t place_a, const Setting& b, size_t place_b) const;
  // Time of the weight synchronisation between placements of the first two stages that begin at
  // these places. Remembered, once for all pairs of places that are alike.
  Seconds sync_time(int training, size_t training_place, int generation, size_t generation_place);
  // At least that, wherever they begin; `shares`: with or without a device in common.
  Seconds least_sync_time(int training, int generation, bool shares);
  // Resident bytes by position on the line. Weights of generation that are training's, rank for
  // rank, are there once.
  std::vector<Bytes> resident(const Arrangement& arrangement) const;
  // What waits in the memory of hosts fits there.
  bool fits_hosts(const Arrangement& arrangement) const;
  // What sets plans apart for a reader: how actor training and generation are laid out, and whether
  // their state is offloaded. Replicas, begins, micro-batches and the other models follow from
  // that.
  static std::array<std::pair<Layout, bool>, 2> kind(const Placement& training,
                                                     const Placement& generation) {
    return {std::pair{training.stage.layout, training.stage.offload},
            std::pair{generation.stage.layout, generation.stage.offload}};
  }
  // What predict_step() says of a plan, from the times of its passes and from who shares devices.
  Seconds total(std::span<const PassTimes> passes, Seconds sync,
                std::span<const StageSet> sharing) const;
  Plan plan(const Found& found) const;
  // The plan and its prediction.
  Candidate candidate(const Found& found) const;
  MemoryPrediction memory(const Plan& plan) const {
    return predict_memory(plan, job_, calibration_);
  }
  // The same problem with actor training under one tp × pp.
  Problem with_training(int tp, int pp) const;

 private:
  struct Begin {
    int placement = 0;
    int position = 0;
    int setting_index = 0;
    const Setting* setting = nullptr;
  };
  Begin begin(size_t stage, int placement, size_t place) const;
  // The same for all begins between which a synchronisation takes as long.
  uint64_t sync_key(const Begin& training, const Begin& generation) const;
  Seconds least_sync_apart(int training, int generation);

  JobSpec job_;
  Cluster cluster_;
  DeviceLine line_;
  Begins begins_;
  Calibration calibration_;
  SchemaSummary generation_weights_;
  std::vector<StageCandidates> stages_;
  Timeline timeline_;
  std::vector<Seconds> host_times_;  // by workflow node; of those on the host
  std::vector<int> sync_nodes_;
  std::unordered_map<uint64_t, Seconds> sync_times_;
};

}  // namespace nereus
