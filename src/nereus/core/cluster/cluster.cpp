#include "nereus/core/cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "nereus/core/base/text.h"
#include "nereus/core/cluster/limits.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, "cluster: " + what);
}

void require_positive(const std::string& field, double value) {
  if (std::isfinite(value) && value > 0) return;
  refuse(field + " must be finite and positive, not " + format_number(value));
}

void verify_link(const std::string& field, const LinkSpec& link) {
  require_positive(field + ".bandwidth", link.bandwidth);
  const double latency = link.latency.count();
  if (!std::isfinite(latency) || latency < 0) {
    refuse(field + ".latency must be finite and at least 0, not " + format_number(latency));
  }
}

}  // namespace

bool is_accelerator(const DeviceSpec& device) { return device.kind != "cpu"; }

DevicePool all_devices(const Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (int host = 0; host < static_cast<int>(cluster.hosts.size()); ++host) {
    for (int index = 0; index < cluster.hosts[host].devices; ++index) {
      devices.push_back({host, index});
    }
  }
  return DevicePool(std::move(devices));
}

const LinkSpec& link(const Cluster& cluster, DeviceId from, DeviceId to) {
  if (from == to) return cluster.local;
  if (from.host != to.host) return cluster.between_hosts;
  return is_host_memory(from) || is_host_memory(to) ? cluster.to_host : cluster.in_host;
}

double speed_share(const HostSpec& host, int active) {
  return std::min(1.0, host.full_speed_devices / std::max(1, active));
}

void verify(const Cluster& cluster) {
  if (cluster.hosts.empty()) refuse("hosts is empty: a cluster needs at least one device");
  int64_t devices = 0;
  for (size_t host = 0; host < cluster.hosts.size(); ++host) {
    const std::string field = "hosts[" + std::to_string(host) + "]";
    require_positive(field + ".devices", cluster.hosts[host].devices);
    devices += cluster.hosts[host].devices;
    if (devices > kMostDevices) {
      refuse("up to " + field + " there are " + std::to_string(devices) + " devices; at most " +
             std::to_string(kMostDevices) + " are legal");
    }
    require_positive(field + ".full_speed_devices", cluster.hosts[host].full_speed_devices);
    require_positive(field + ".nic_bandwidth", cluster.hosts[host].nic_bandwidth);
    if (cluster.hosts[host].memory < Bytes(0)) {
      refuse(field + ".memory must be at least 0, not " +
             std::to_string(cluster.hosts[host].memory.count()));
    }
  }
  require_positive("device.memory", static_cast<double>(cluster.device.memory.count()));
  require_positive("device.flops", cluster.device.flops);
  require_positive("device.memory_bandwidth", cluster.device.memory_bandwidth);
  verify_link("local", cluster.local);
  verify_link("in_host", cluster.in_host);
  verify_link("between_hosts", cluster.between_hosts);
  verify_link("to_host", cluster.to_host);
  if (!std::isfinite(cluster.connecting.count()) || cluster.connecting < Seconds()) {
    refuse("connecting_s must be finite and at least 0, not " +
           format_number(cluster.connecting.count()));
  }
}

void to_json(Json& j, const HostSpec& host) {
  j = {{"devices", host.devices},
       {"full_speed_devices", host.full_speed_devices},
       {"memory", host.memory},
       {"nic_bandwidth", host.nic_bandwidth}};
}

void from_json(const Json& j, HostSpec& host) {
  refuse_unknown_keys(j, {"devices", "full_speed_devices", "memory", "nic_bandwidth"},
                      "cluster host");
  host.devices = require<int>(j, "devices", "cluster host");
  host.full_speed_devices = optional(j, "full_speed_devices", double(host.devices), "cluster host");
  host.memory = optional(j, "memory", Bytes(), "cluster host");
  host.nic_bandwidth = optional(j, "nic_bandwidth", 0.0, "cluster host");
}

void to_json(Json& j, const DeviceSpec& device) {
  j = {{"kind", device.kind},
       {"memory", device.memory},
       {"flops", device.flops},
       {"memory_bandwidth", device.memory_bandwidth}};
}

void from_json(const Json& j, DeviceSpec& device) {
  refuse_unknown_keys(j, {"kind", "memory", "flops", "memory_bandwidth"}, "cluster device");
  device.kind = require<std::string>(j, "kind", "cluster device");
  device.memory = require<Bytes>(j, "memory", "cluster device");
  device.flops = require<double>(j, "flops", "cluster device");
  device.memory_bandwidth = require<double>(j, "memory_bandwidth", "cluster device");
}

void to_json(Json& j, const LinkSpec& link) {
  j = {{"bandwidth", link.bandwidth}, {"latency", link.latency}};
}

void from_json(const Json& j, LinkSpec& link) {
  refuse_unknown_keys(j, {"bandwidth", "latency"}, "cluster link");
  link.bandwidth = require<double>(j, "bandwidth", "cluster link");
  link.latency = require<Seconds>(j, "latency", "cluster link");
}

void to_json(Json& j, const Cluster& cluster) {
  j = {{"hosts", cluster.hosts},
       {"device", cluster.device},
       {"local", cluster.local},
       {"in_host", cluster.in_host},
       {"between_hosts", cluster.between_hosts},
       {"to_host", cluster.to_host},
       {"connecting_s", cluster.connecting}};
}

void from_json(const Json& j, Cluster& cluster) {
  refuse_unknown_keys(
      j, {"hosts", "device", "local", "in_host", "between_hosts", "to_host", "connecting_s"},
      "cluster");
  cluster.hosts = require<std::vector<HostSpec>>(j, "hosts", "cluster");
  cluster.device = require<DeviceSpec>(j, "device", "cluster");
  cluster.local = require<LinkSpec>(j, "local", "cluster");
  cluster.in_host = require<LinkSpec>(j, "in_host", "cluster");
  cluster.between_hosts = require<LinkSpec>(j, "between_hosts", "cluster");
  cluster.to_host = optional(j, "to_host", cluster.in_host, "cluster");
  cluster.connecting = optional(j, "connecting_s", Seconds(), "cluster");
  for (size_t host = 0; host < cluster.hosts.size(); ++host) {
    if (j["hosts"][host].contains("nic_bandwidth")) continue;
    cluster.hosts[host].nic_bandwidth =
        cluster.hosts[host].devices * cluster.between_hosts.bandwidth;
  }
}

}  // namespace nereus
