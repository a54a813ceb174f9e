// Which devices a job computes on, and what the planner knows of them.
#pragma once

#include <span>

#include "nereus/app/config/config.h"
#include "nereus/core/cluster/backend.h"
#include "nereus/core/cluster/cluster.h"
#include "nereus/runtime/supply/gpus.h"
#include "nereus/runtime/supply/schedule.h"

namespace nereus {

struct HostDevices {
  Backend backend;
  int count = 0;  // of each host
};

// What `cluster.device` and `cluster.devices` ask for on a host with `found` GPUs: "auto" takes all
// of these, or the CPU if there are none. GPUs that are not there may be asked for by number or
// count, to plan for another machine. Throws Error(kInvalidInput) for other words, for a count that
// contradicts the list of GPUs, and for "cuda" alone where no GPU is.
HostDevices host_devices(const ClusterConfig& cluster, int found);

// Peak rates are starting values, the H200's for GPUs that are not known by name; calibration
// corrects them. The memory of GPUs that are there is measured, that of others is an H200's.
Cluster to_cluster(const ClusterConfig& cluster, std::span<const Gpu> found);

// The configured cluster, with the GPUs that are visible here. Throws Error(kInvalidInput) also for
// what does not suit its devices: virtual ones without memory, a link's speed for GPUs, a supply of
// more devices than there are.
Cluster to_cluster(const Config& config);

// The devices of each step. Throws Error(kInvalidInput) for a bad trace.
SupplySchedule to_supply(const SupplySetting& setting, const Cluster& cluster);

// Throws Error(kInvalidInput) if a GPU that is to compute is not among `found` ones.
void require_gpus(const Backend& backend, int found);

}  // namespace nereus
