// Executing one trial on virtual devices with real (tiny) state: by Nereus' global DAG, and by
// components that migrate on their own.
#pragma once

#include "coordination/scenario.h"
#include "nereus/runtime/engine/state_store.h"

namespace nereus::bench {

struct Outcome {
  bool completed = false;  // all state is where `to` wants it, and bit-equal
  Seconds elapsed;
  int resource_edges = 0;           // of the global DAG
  std::vector<std::string> circle;  // who waited for whom for ever
  std::string failure;              // any other reason
};

// Compiles one DAG for all components and executes it.
Outcome migrate_coordinated(const Trial& trial, const JobSpec& job, const Cluster& cluster);

// DynaRL's way: every component runs its local DAG on a thread of its own, new replicas first,
// freed ones afterwards. A unit owns its devices; a new one takes the devices it needs one after
// the other, in an order of its own, and waits while another component owns them. A circle of
// waiting components that has not changed for `patience` counts as a deadlock, which would last
// until any time limit.
Outcome migrate_per_component(const Trial& trial, const JobSpec& job, const Cluster& cluster,
                              Seconds patience);

}  // namespace nereus::bench
