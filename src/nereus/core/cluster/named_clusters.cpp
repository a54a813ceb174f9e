// The clusters of the paper's evaluation, from vendors' peak rates. Capacities are decimal GB.
#include <cstddef>
#include <string>
#include <vector>

#include "nereus/core/base/text.h"
#include "nereus/core/cluster/cluster.h"

namespace nereus {

namespace {

struct NamedHost {
  std::string name;
  int devices = 0;
  DeviceSpec device;
  double in_host_bandwidth = 0;        // bytes/s, one way: half of the vendor's total
  double between_hosts_bandwidth = 0;  // bytes/s of the NIC that a device uses
  double nic_bandwidth = 0;            // bytes/s of all NICs of the host
  Bytes memory;                        // of the host
  double to_host_bandwidth = 0;        // bytes/s of a copy to pinned memory, one way
};

std::vector<NamedHost> named_hosts() {
  return {// Cluster 3: one 25 GB/s NIC, shared by the eight devices of a host.
          {.name = "h200x8",
           .devices = 8,
           .device = {"h200", Bytes(141'000'000'000), 989e12, 4.8e12},
           .in_host_bandwidth = 450e9,
           .between_hosts_bandwidth = 25e9,
           .nic_bandwidth = 25e9,
           .memory = Bytes(2'000'000'000'000),
           .to_host_bandwidth = 55e9},
          // Cluster 2: the custom A100 with 64 GB HBM2e at 1.64 TB/s; a 12.5 GB/s NIC each.
          {.name = "a100x4",
           .devices = 4,
           .device = {"a100-64gb", Bytes(64'000'000'000), 312e12, 1.64e12},
           .in_host_bandwidth = 300e9,
           .between_hosts_bandwidth = 12.5e9,
           .nic_bandwidth = 4 * 12.5e9,
           .memory = Bytes(512'000'000'000),
           .to_host_bandwidth = 25e9},
          // Cluster 1: a device is one of the card's two dies (GCD); four 25 GB/s NICs for eight.
          {.name = "mi250x8",
           .devices = 8,
           .device = {"mi250x-gcd", Bytes(64'000'000'000), 191.5e12, 1.6e12},
           .in_host_bandwidth = 200e9,
           .between_hosts_bandwidth = 12.5e9,
           .nic_bandwidth = 4 * 25e9,
           .memory = Bytes(512'000'000'000),
           .to_host_bandwidth = 36e9}};
}

}  // namespace

Cluster cpu_cluster(int devices, Bytes memory, int cores) {
  // One AVX core on fp32 matrices; links are memory copies between threads.
  return {.hosts = {{devices, static_cast<double>(cores), memory * devices, 1e9}},
          .device = {"cpu", memory, 40e9, 10e9},
          .local = {5e9, Seconds(1e-6)},
          .in_host = {5e9, Seconds(20e-6)},
          .between_hosts = {1e9, Seconds(50e-6)},
          .to_host = {5e9, Seconds(20e-6)}};
}

Cluster named_cluster(const std::string& name, int hosts) {
  std::vector<std::string> names;
  for (const NamedHost& host : named_hosts()) {
    names.push_back(host.name);
    if (host.name != name) continue;
    if (hosts < 1) {
      throw Error(ErrorCode::kInvalidInput,
                  "cluster " + name + " needs at least 1 host, not " + std::to_string(hosts));
    }
    const HostSpec shape{host.devices, static_cast<double>(host.devices), host.memory,
                         host.nic_bandwidth};
    // A local copy reads and writes the same memory, so it runs at half the bandwidth.
    return {.hosts = std::vector(static_cast<size_t>(hosts), shape),
            .device = host.device,
            .local = {host.device.memory_bandwidth / 2, Seconds(5e-6)},
            .in_host = {host.in_host_bandwidth, Seconds(10e-6)},
            .between_hosts = {host.between_hosts_bandwidth, Seconds(25e-6)},
            .to_host = {host.to_host_bandwidth, Seconds(10e-6)},
            // NCCL on two H200: splitting one off takes as long as making another one.
            .connecting = Seconds(0.04)};
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown cluster \"" + name + "\"; known: " + join(names, ", "));
}

}  // namespace nereus
