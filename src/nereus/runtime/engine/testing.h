// Virtual devices that hold random training state, for the tests of transitions.
#pragma once

#include <ATen/ATen.h>

#include <cstdlib>

#include "nereus/core/transition/compile.h"
#include "nereus/core/transition/random_transition.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/engine/transition_executor.h"

namespace nereus::testing {

// How often to repeat a random test: a few times, or as the environment says.
inline int cases(const char* variable, int usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::atoi(text);
}

// Where tests compute: on the CPU, or on the GPUs that NEREUS_TEST_DEVICES names ("cuda:0"), which
// devices share in turns if they are more.
inline Backend backend(int devices) {
  const char* text = std::getenv("NEREUS_TEST_DEVICES");
  const Backend named = text == nullptr ? Backend{} : parse_backend(text);
  Backend backend;
  for (int i = 0; !named.is_cpu() && i < devices; ++i) {
    backend.gpus.push_back(named.gpus[i % named.gpus.size()]);
  }
  return backend;
}

// A random transition between plans of tiny models on at most `devices` devices, `per_host` to a
// host; memory without limit.
inline TransitionCase random_case(uint64_t seed, int devices, int per_host) {
  TransitionCase c = RandomTransition(seed).make(devices);
  const int old_per_host = c.cluster.hosts.front().devices;
  const int hosts = (devices + per_host - 1) / per_host;
  c.cluster.hosts.assign(hosts, c.cluster.hosts.front());
  for (HostSpec& host : c.cluster.hosts) host.devices = per_host;
  for (Plan* plan : {&c.from, &c.to}) {
    for (StagePlan& stage : plan->stages) {
      for (auto& unit : stage.units) {
        for (DeviceId& device : unit) {
          const int number = device.host * old_per_host + device.index;
          device = {number / per_host, number % per_host};
        }
      }
    }
  }
  return c;
}

// The most that any device holds under a plan.
inline Bytes most_state(const TransitionCase& c, const Plan& plan) {
  std::map<DeviceId, Bytes> bytes;
  for (const StagePlan& stage : plan.stages) {
    const StateSchema schema =
        state_schema(c.job.models.at(stage.model_stage.role), stage.model_stage);
    for (const Emu& unit : units_of(stage)) {
      for (int index = 0; index < unit.layout.devices(); ++index) {
        bytes[unit.devices[index]] += state_bytes(schema, unit.layout, index);
      }
    }
  }
  Bytes most;
  for (const auto& [device, held] : bytes) most = std::max(most, held);
  return most;
}

// The case's cluster with memory between what both plans need and what moving at leisure needs
// (slack 0 … 1).
inline Cluster tightened(const TransitionCase& c, double slack) {
  Cluster cluster = c.cluster;
  const auto dag = compile_transition(c.from, c.to, c.job, c.cluster, Calibration());
  if (!dag) return cluster;
  const Bytes floor = std::max(most_state(c, c.from), most_state(c, c.to));
  Bytes peak = floor;
  for (const auto& [device, bytes] : dag->peak_bytes) peak = std::max(peak, bytes);
  cluster.device.memory = floor + (peak - floor) * slack + Bytes(64);
  for (HostSpec& host : cluster.hosts) host.memory = cluster.device.memory * 8;
  return cluster;
}

// The part of a logical tensor that a box names.
inline at::Tensor region(const at::Tensor& global, const Box& box) {
  at::Tensor part = global;
  for (size_t d = 0; d < box.begin.size(); ++d) {
    part = part.slice(static_cast<int64_t>(d), box.begin[d], box.end[d]);
  }
  return part;
}

class VirtualDevices {
 public:
  VirtualDevices(const JobSpec& job, const Cluster& cluster)
      : job_(job),
        backend_(backend(all_devices(cluster).size())),
        workers_(cluster, backend_),
        store_(workers_) {}

  StateSchema schema(ModelStage model_stage) const {
    return state_schema(job_.models.at(model_stage.role), model_stage);
  }
  std::function<StateSchema(ModelStage)> schemas() const {
    return [this](ModelStage model_stage) { return schema(model_stage); };
  }

  // State under a plan, equal in all replicas: random, but always the same.
  void fill(const Plan& plan);

  // What is wrong with the state under a plan; "" if there are its units and no others, complete,
  // with the bits of fill(), and not a byte of memory beyond them.
  std::string problem_with(const Plan& plan) const;

  // Lost devices are dropped.
  TransitionReport run(const TransitionDag& dag, const ExecuteOptions& options = {}) {
    const TransitionReport report = execute(dag, store_, schemas(), options);
    if (report.failure) {
      for (const DeviceId device : report.failure->lost) store_.drop(device);
    }
    return report;
  }
  StateStore& store() { return store_; }
  const WorkerPool& workers() const { return workers_; }
  // False on accelerators, whose allocators round up and go beyond a small budget.
  bool memory_is_exact() const { return backend_.is_cpu(); }

 private:
  static void fill(UnitState& rank, const std::map<StateKind, TensorMap>& state);

  JobSpec job_;
  Backend backend_;
  WorkerPool workers_;
  StateStore store_;
  std::map<ModelStage, std::map<StateKind, TensorMap>> logical_;
};

inline void VirtualDevices::fill(const Plan& plan) {
  at::manual_seed(17);
  for (const StagePlan& stage : plan.stages) {
    const StateSchema layers = schema(stage.model_stage);
    auto& state = logical_[stage.model_stage];
    for (const StateComponent& component : layers.components) {
      for (const TensorSpec& tensor : layers.tensors) {
        state[component.kind][tensor.name] =
            at::randn(tensor.shape, at::dtype(scalar_type(component.dtype)));
      }
    }
    for (const Emu& unit : units_of(stage)) {
      store_.create(unit, layers);
      // On this thread: handing each piece to a worker takes longer than copying it.
      for (const DeviceId device : unit.devices) fill(store_.at(unit, device), state);
    }
  }
  for (const DeviceId device : workers_.devices()) workers_.at(device).memory().reset_peak();
}

inline void VirtualDevices::fill(UnitState& rank, const std::map<StateKind, TensorMap>& state) {
  rank.updates = 17;
  for (const auto& [kind, tensors] : state) {
    for (int i = 0; i < static_cast<int>(rank.schema().tensors.size()); ++i) {
      const std::optional<Box>& box = rank.box(i, kind);
      if (box) rank.tensor(i, kind).copy_(region(tensors.at(rank.schema().tensors[i].name), *box));
    }
  }
}

inline std::string VirtualDevices::problem_with(const Plan& plan) const {
  EmuCollection expected;
  std::map<DeviceId, Bytes> bytes;
  for (const StagePlan& stage : plan.stages) {
    const StateSchema layers = schema(stage.model_stage);
    for (const Emu& unit : units_of(stage)) {
      if (!store_.contains(unit)) return to_string(unit) + " is not complete";
      expected.push_back(unit);
      for (int index = 0; index < unit.layout.devices(); ++index) {
        bytes[unit.devices[index]] += state_bytes(layers, unit.layout, index);
        if (store_.at(unit, unit.devices[index]).updates != 17) return "a step counter is lost";
      }
      for (const auto& [kind, tensors] : logical_.at(stage.model_stage)) {
        const TensorMap found = store_.gather(unit, kind);
        for (const auto& [name, tensor] : tensors) {
          if (!found.contains(name) || !at::equal(found.at(name), tensor)) {
            return to_string(unit) + ": " + to_string(kind) + " of " + name + " changed";
          }
        }
      }
    }
  }
  std::ranges::sort(expected);
  if (store_.units() != expected) return "other units than the plan's are left";
  for (const DeviceId device : workers_.devices()) {
    if (!memory_is_exact()) break;
    const Bytes used = workers_.at(device).memory().current();
    if (used != bytes[device]) return "device " + to_string(device) + " holds " + to_string(used);
  }
  return "";
}

}  // namespace nereus::testing
