// The transitions of Table 4 and Figure 12, and what the paper measured for them on its Cluster #3.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/core/cluster/cluster.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus::bench {

struct Workload {
  std::string figure;
  std::string name;
  JobSpec job;
  Cluster cluster;
  Plan from;
  Plan to;
  std::map<std::string, std::string> paper;  // system → seconds, as printed there
};

// Doubling the devices of an 8B job, 4 → 8 … 32 → 64: the actor's generation weights and all
// training state of the critic, which is what the paper's seconds fit; and all of PPO.
// Halving and doubling TP or PP of training state on the same devices: 8B on 8 … 64, 70B on 64.
std::vector<Workload> workloads(const std::string& cluster);

}  // namespace nereus::bench
