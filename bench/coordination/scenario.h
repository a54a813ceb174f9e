// The scenarios of Table 5: model-stages ("components") that hand devices to each other.
//
// Every component holds 16 devices: four slots of four devices of one host, filled with its units
// (two units of two devices, or one of four). In a trial the devices of each host are shuffled into
// slots and the slots are dealt out at random; then every component gives one of its slots, drawn
// at random, to a component drawn at random, which may be itself: then it keeps the slot. Drawn
// again if nobody gives anything. So A grows onto devices that B releases, and in part of the
// assignments B also needs devices of A, directly or through a third component. Layouts stay as
// they are; a device has room for a unit of one component only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nereus/core/cluster/cluster.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus::bench {

struct Component {
  ModelStage model_stage;
  Layout layout;
};

struct Overlap {
  std::string name;
  std::string meaning;
  std::vector<Component> components;  // sorted by model-stage
  // Table 5: success of per-component migration in percent, and resource edges of the paper's DAG.
  int paper_success = 0;
  int paper_edges = 0;
};

// SM-CS (32 devices), CM-SS and CM-CS (48).
std::vector<Overlap> overlaps();

// The same tiny model in every role.
JobSpec job_of(const Overlap& overlap);
// Hosts of eight virtual devices on the cores of this machine, each with room for any unit but not
// for two.
Cluster cluster_of(const Overlap& overlap, const JobSpec& job);

struct Trial {
  Plan from;
  Plan to;
  // Of each component: when it begins, and a seed for the order in which it takes devices.
  std::vector<Seconds> launch;
  std::vector<uint64_t> order_seeds;
};
Trial make_trial(const Overlap& overlap, uint64_t seed);

}  // namespace nereus::bench
