#include "nereus/app/assemble/devices.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

// Of a GPU's memory; the rest is its context's, NCCL's buffers and what fragments.
constexpr double kUsableShare = 0.94;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidInput, message);
}

Backend first_gpus(int count) {
  Backend backend;
  backend.gpus.resize(count);
  std::iota(backend.gpus.begin(), backend.gpus.end(), 0);
  return backend;
}

// A named cluster with that kind of device.
std::string named_like(const std::string& gpu) {
  return gpu.find("A100") != std::string::npos ? "a100x4" : "h200x8";
}

Cluster gpu_cluster(const HostDevices& devices, Bytes budget, std::span<const Gpu> found) {
  const std::vector<int>& gpus = devices.backend.gpus;
  const auto is_here = [&](int gpu) { return gpu < std::ssize(found); };
  const bool all_here = std::ranges::all_of(gpus, is_here);
  Cluster cluster = named_cluster(all_here ? named_like(found[gpus.front()].name) : "h200x8", 1);
  int most_sharing = 1;
  for (int i = 0; i < devices.count; ++i) {
    most_sharing = std::max(most_sharing, devices.backend.sharing({0, i}));
  }
  if (all_here) {
    Bytes smallest = found[gpus.front()].memory;
    for (const int gpu : gpus) smallest = std::min(smallest, found[gpu].memory);
    cluster.device.memory = smallest * kUsableShare;
  }
  cluster.device.memory = budget > Bytes() ? budget : cluster.device.memory * (1.0 / most_sharing);
  cluster.hosts[0].devices = devices.count;
  cluster.hosts[0].full_speed_devices = static_cast<double>(devices.count) / most_sharing;
  return cluster;
}

// What the configuration says of devices that it does not have.
void verify_devices(const Config& config, int found) {
  const ClusterConfig& cluster = config.cluster;
  const HostDevices devices = host_devices(cluster, found);
  if (devices.backend.is_cpu() && cluster.memory_per_device.count() == 0) {
    refuse("cluster.memory_per_device is missing: virtual CPU devices need one, e.g. 48MiB");
  }
  if (!devices.backend.is_cpu() && cluster.link_bandwidth.count() > 0) {
    refuse("cluster.link_bandwidth slows down virtual CPU devices only: leave it out for " +
           cluster.device);
  }
  for (const auto& [step, count] : config.supply.counts.entries) {
    if (count > int64_t{devices.count} * cluster.hosts) {
      refuse("supply gives " + std::to_string(count) + " devices at step " + std::to_string(step) +
             ", but cluster.devices × cluster.hosts is " +
             std::to_string(devices.count * cluster.hosts) + ": lower it, or leave supply out");
    }
  }
}

}  // namespace

HostDevices host_devices(const ClusterConfig& cluster, int found) {
  const std::string& device = cluster.device;
  const bool automatic = device == "auto";
  if (device == "cpu" || (automatic && found == 0)) return {{}, std::max(1, cluster.devices)};
  if (device == "cuda" || automatic) {
    const int count = cluster.devices > 0 ? cluster.devices : found;
    if (count == 0) {
      refuse(
          "cluster.device = cuda: no GPU is here. Give cluster.devices to plan for another "
          "machine, or compute with cluster.device=cpu");
    }
    return {first_gpus(count), count};
  }
  Backend backend;
  try {
    backend = parse_backend(device);
  } catch (const Error& error) {
    refuse("cluster.device = " + std::string(error.what()) + ", cuda for all GPUs, or auto");
  }
  const auto count = static_cast<int>(backend.gpus.size());
  if (cluster.devices > 0 && cluster.devices != count) {
    refuse("cluster.device = " + device + " names " + std::to_string(count) +
           " devices, cluster.devices = " + std::to_string(cluster.devices) +
           ": leave the latter out");
  }
  return {backend, count};
}

Cluster to_cluster(const ClusterConfig& wanted, std::span<const Gpu> found) {
  const HostDevices devices = host_devices(wanted, static_cast<int>(found.size()));
  Cluster cluster;
  if (devices.backend.is_cpu()) {
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    cluster = cpu_cluster(devices.count, wanted.memory_per_device,
                          wanted.cores == 0 ? cores : wanted.cores);
    if (wanted.link_bandwidth > Bytes()) {
      cluster.in_host.bandwidth = static_cast<double>(wanted.link_bandwidth.count());
    }
  } else {
    cluster = gpu_cluster(devices, wanted.memory_per_device, found);
  }
  if (wanted.host_memory > Bytes()) cluster.hosts[0].memory = wanted.host_memory;
  cluster.hosts.resize(static_cast<size_t>(wanted.hosts), cluster.hosts[0]);
  return cluster;
}

Cluster to_cluster(const Config& config) {
  const std::vector<Gpu> found = visible_gpus();
  verify_devices(config, static_cast<int>(found.size()));
  return to_cluster(config.cluster, found);
}

SupplySchedule to_supply(const SupplySetting& supply, const Cluster& cluster) {
  if (!supply.file.empty()) return read_supply_trace(cluster, supply.file);
  if (supply.counts.entries.empty()) return constant_supply(cluster);
  std::vector<std::pair<int, int>> counts;
  for (const auto& [step, count] : supply.counts.entries) {
    counts.emplace_back(step, static_cast<int>(count));
  }
  return supply_of_counts(cluster, counts);
}

void require_gpus(const Backend& backend, int found) {
  for (const int gpu : backend.gpus) {
    if (gpu < found) continue;
    refuse("cluster.device = " + to_string(backend) + ": there is no GPU " + std::to_string(gpu) +
           ", " + std::to_string(found) +
           " are visible (0 with a torch that is built for the CPU). Name those that are there; "
           "devices may share one: cuda:0,0");
  }
}

}  // namespace nereus
