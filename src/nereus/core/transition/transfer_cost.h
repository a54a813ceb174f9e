// What moving state costs: bytes, links, seconds at the links' full speed.
#pragma once

#include <span>
#include <vector>

#include "nereus/core/transition/primitive.h"
#include "nereus/core/transition/schedule.h"
#include "nereus/core/transition/stage_tables.h"

namespace nereus {

// Dense numbers for the devices of a cluster and for the memory of its hosts.
class DeviceNumbers final {
 public:
  explicit DeviceNumbers(const Cluster& cluster);
  int of(DeviceId device) const { return device.host * stride_ + device.index + 1; }
  DeviceId device(int number) const { return {number / stride_, number % stride_ - 1}; }
  int count() const { return hosts_ * stride_; }

 private:
  int hosts_;
  int stride_ = 1;  // devices of the largest host + its memory
};

// How many devices of a host can send to other hosts at full speed at once.
int nic_lanes(const Cluster& cluster, int host);

struct TransferCost {
  Bytes moved;       // between devices: what targets need less what their devices hold already
  Bytes resident;    // the rest, copied within a device
  Seconds transfer;  // at full speed: the busiest device or NIC decides
  std::span<const int> senders;  // numbers of devices that bytes come from; until the next one
  std::vector<NicUse> nics;
};

// Counts bytes by rank and link without listing boxes. Not thread-safe.
class TransferMeter final {
 public:
  TransferMeter(const Cluster& cluster, const DeviceNumbers& numbers);

  // Of a primitive whose sources all have one layout: each target rank takes what it lacks from the
  // source ranks that hold most of it, from a replica on its own host if there is one, in turns.
  TransferCost measure(const Primitive& primitive, std::span<const Emu> units, StageTables& tables);

 private:
  struct Load {
    Seconds local;
    Seconds out;
    Seconds in;
    bool touched = false;
    bool uses_nic = false;
    int holder = -1;  // rank of a source unit
  };
  struct HostLoad {
    Bytes out;
    Bytes in;
    int devices = 0;  // that use the NIC; 0: the host is not touched
  };

  void fetch(DeviceId to, int to_index, int resident, const OverlapTable& table, Bytes missing);
  DeviceId source_of(int rank, int host);
  void find_replicas();
  void send(DeviceId from, DeviceId to, Bytes bytes);
  void use_nic(DeviceId device);
  Load& load(DeviceId device);
  TransferCost summary();

  const Cluster& cluster_;
  const DeviceNumbers& numbers_;
  std::vector<Load> loads_;
  std::vector<int> touched_;
  std::vector<int> senders_;
  std::vector<HostLoad> hosts_;
  std::vector<int> touched_hosts_;

  std::span<const Emu> units_;
  std::span<const int> sources_;
  // By rank: devices that hold it, by host. Filled when first asked for, if there are several
  // sources; memory is used again.
  bool replicas_known_ = false;
  std::vector<std::vector<DeviceId>> replicas_;
  std::vector<size_t> turn_;
};

}  // namespace nereus
