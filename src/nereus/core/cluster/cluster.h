// What hardware there is: hosts, devices, peak rates and links.
#pragma once

#include <string>
#include <vector>

#include "nereus/core/base/units.h"
#include "nereus/core/cluster/device.h"

namespace nereus {

// One kind of device; a cluster is homogeneous.
struct DeviceSpec {
  std::string kind = "cpu";
  Bytes memory;                 // capacity a plan may use, per device
  double flops = 0;             // peak FLOP/s of one device for dense matrix products
  double memory_bandwidth = 0;  // bytes/s
  bool operator==(const DeviceSpec&) const = default;
};

// Whether it is a GPU or the like, not a virtual device of the CPU.
bool is_accelerator(const DeviceSpec& device);

// Time of a message of n bytes = latency + n / bandwidth.
struct LinkSpec {
  double bandwidth = 0;  // bytes/s, one way
  Seconds latency;
  bool operator==(const LinkSpec&) const = default;
};

struct HostSpec {
  int devices = 0;
  // How many devices can run at full speed at once: the number of devices for accelerators, the
  // number of cores for virtual CPU devices (four of them on two cores run at half speed each).
  double full_speed_devices = 0;
  Bytes memory;              // host RAM that a job may use for parked state; 0: none
  double nic_bandwidth = 0;  // bytes/s that all its devices together send to other hosts, one way
  bool operator==(const HostSpec&) const = default;
};

struct Cluster {
  std::vector<HostSpec> hosts;
  DeviceSpec device;
  LinkSpec local;          // within one device: memory copies
  LinkSpec in_host;        // between devices of a host
  LinkSpec between_hosts;  // what one device reaches alone through the NIC
  LinkSpec to_host;        // between a device and the memory of its host
  Seconds connecting;      // making a communicator across hosts for a transition
  bool operator==(const Cluster&) const = default;
};

// All devices of the cluster.
DevicePool all_devices(const Cluster& cluster);
// The link that carries bytes between two devices, either of which may be the memory of a host.
const LinkSpec& link(const Cluster& cluster, DeviceId from, DeviceId to);
// Fraction (0, 1] of peak speed that each of `active` devices of one host reaches at once.
double speed_share(const HostSpec& host, int active);

// Throws Error(kInvalidInput) naming the field if the cluster has no devices, a rate, capacity or
// bandwidth is not finite and positive, or a host's memory is negative.
void verify(const Cluster& cluster);

// One host of `devices` virtual CPU devices on `cores` physical cores, `memory` each and as much
// again for parked state. The rates are starting values of an ordinary server core; calibration
// corrects them.
Cluster cpu_cluster(int devices, Bytes memory, int cores);
// Named clusters: "h200x8", "a100x4", "mi250x8" (PAPER.md clusters 3, 2, 1), `hosts` of each.
// Throws Error(kInvalidInput) listing the names for any other.
Cluster named_cluster(const std::string& name, int hosts);

void to_json(Json& j, const HostSpec& host);
void from_json(const Json& j, HostSpec& host);
void to_json(Json& j, const DeviceSpec& device);
void from_json(const Json& j, DeviceSpec& device);
void to_json(Json& j, const LinkSpec& link);
void from_json(const Json& j, LinkSpec& link);
void to_json(Json& j, const Cluster& cluster);
// to_host may be left out (= in_host), a host's memory (0) and nic_bandwidth (each device reaches
// between_hosts.bandwidth at once) too.
void from_json(const Json& j, Cluster& cluster);

}  // namespace nereus
