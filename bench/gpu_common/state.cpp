#include "gpu_common/state.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nereus::bench {

ModelSpec shape_named(const std::string& name) {
  if (name == "1b") return llama_1b();
  if (name == "3b") return llama_3b();
  if (name == "8b") return llama_8b();
  throw Error(ErrorCode::kInvalidInput, "--shape is " + name + "; legal: 1b, 3b, 8b");
}

int64_t num_parameters(const ModelSpec& spec) {
  int64_t count = 0;
  for (const TensorSpec& tensor : tensors(spec)) count += volume(whole(tensor.shape));
  return count;
}

Cluster gpu_cluster(int devices) {
  Cluster cluster = named_cluster("h200x8", 1);
  cluster.hosts.front().devices = devices;
  cluster.hosts.front().full_speed_devices = devices;
  return cluster;
}

Backend first_gpus(int count) {
  Backend backend;
  for (int i = 0; i < count; ++i) backend.gpus.push_back(i);
  return backend;
}

Plan actor_plan(ModelStage model_stage, Layout layout, int units) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < units * layout.devices(); ++i) devices.push_back({0, i});
  return plan_of({stage_on(model_stage, layout, devices)});
}

GpuState::GpuState(const ModelSpec& spec, ModelStage model_stage, int devices)
    : model_stage_(model_stage),
      cluster_(gpu_cluster(devices)),
      job_(ppo_job(spec)),
      workers_(cluster_, first_gpus(devices)),
      store_(workers_),
      compiler_(job_, cluster_) {}

Bytes GpuState::bytes() const { return state_bytes(schema(), Layout(), 0); }

namespace {

void randomize(const UnitState& state) {
  for (const StateComponent& component : state.schema().components) {
    const bool is_moment =
        component.kind == StateKind::kExpAvg || component.kind == StateKind::kExpAvgSq;
    for (at::Tensor arena : state.arenas(component.kind)) arena.normal_(0, is_moment ? 0 : 0.02);
  }
  for (auto& [name, weight] : state.weights()) {
    if (name.ends_with("norm.weight")) at::Tensor(weight).fill_(1);
  }
}

}  // namespace

void GpuState::fill(const Plan& plan) {
  for (const Emu& unit : units_of(plan.stages.front())) {
    store_.create(unit, schema());
    workers_.run(
        unit.devices,
        [&](Worker& worker) {
          randomize(store_.at(unit, worker.id()));
          worker.synchronise();
        },
        [](const std::string&) {});
  }
}

Expected<TransitionDag> GpuState::compile(const Plan& from, const Plan& to) {
  return compiler_.compile(from, to, measured_calibration());
}

TransitionReport GpuState::run(const TransitionDag& dag, const WorkerPool* workers) {
  const ExecuteOptions options{.verify = false, .workers = workers};
  return execute(dag, store_, [this](ModelStage) { return schema(); }, options);
}

Bytes GpuState::most_received(const Plan& from, const Plan& to) const {
  const StateSchema all = schema();
  const ReshardPlan plan = reshard(units_of(from.stages.front()), units_of(to.stages.front()), all);
  std::map<DeviceId, Bytes> received;
  for (const Move& move : plan.moves) {
    if (move.from != move.to) received[move.to] += bytes_of(move, all);
  }
  Bytes most;
  for (const auto& [device, bytes] : received) most = std::max(most, bytes);
  return most;
}

}  // namespace nereus::bench
