// What the search chooses from: for each model-stage, how it may be placed and run, with its times
// and bytes. Everything is predicted once and on its own; only weight synchronisation needs two.
#pragma once

#include <vector>

#include "nereus/core/planner/begins.h"

namespace nereus {

// One way to run the passes of a placed model-stage: a micro-batch, and recomputation or not; of
// generation, a number of waves.
struct Variant {
  int micro_batch = 1;
  int waves = 1;
  bool recompute = false;
  bool is_current = false;       // so it is in the plan in force, devices aside
  std::vector<Seconds> passes;   // in the order of StageCandidates::nodes
  Seconds time;                  // their sum
  std::vector<Bytes> transient;  // by rank, calibrated
  Bytes most_transient;
};

// How a placement lies on the hosts from some place on, and how fast it is there.
struct Setting {
  Footprint footprint;
  bool has_gaps = false;          // it leaves devices out between its own
  bool is_regular = false;        // all in the regular part of the line
  std::vector<Variant> variants;  // fastest first, none needing more memory than a faster one

  int span() const { return static_cast<int>(footprint.ranks.size()); }
};

// A model-stage in one layout on a number of units, wherever it begins, with its state on the
// devices or in host memory; that does not depend on the variant.
struct Placement {
  StagePlan stage;              // of no particular variant, at the front
  std::vector<Bytes> resident;  // by rank
  Bytes most_resident;
  std::vector<Bytes> parked;      // by rank, in the memory of its host; empty: nothing
  std::vector<Setting> settings;  // all that differ; the first is that at the front
  std::vector<int16_t> by_place;  // index of the setting; -1: it cannot begin there

  int devices() const { return static_cast<int>(stage.units.size()) * stage.layout.devices(); }
  // nullptr: it cannot begin there.
  const Setting* at(size_t place) const {
    return by_place[place] < 0 ? nullptr : &settings[size_t(by_place[place])];
  }
};

struct StageCandidates {
  ModelStage model_stage;
  std::vector<int> nodes;             // of the workflow: the passes on this model-stage
  std::vector<Placement> placements;  // by the time of their fastest variant at the front
};

// Power-of-two tp within a host and zero; power-of-two pp, to training also every other that
// shortens the longest stage; the numbers of units that divide the batch, or that have at most
// three binary digits and shorten the share of the fullest unit; of the allowed micro-batches those
// that make a difference; power-of-two waves. None depends on how much memory there is. `current`
// may be null; its degree is a candidate too.
StageCandidates stage_candidates(ModelStage model_stage, const JobSpec& job, const Cluster& cluster,
                                 const DeviceLine& line, const Begins& begins,
                                 const Calibration& calibration, const PlannerOptions& options,
                                 const Plan* current);

}  // namespace nereus
