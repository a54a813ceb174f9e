#include "nereus/runtime/live/runtime.h"

#include <algorithm>
#include <set>

#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus {

Runtime::Runtime(const Cluster& cluster, const Backend& backend, std::map<Role, ModelUse> models)
    : models_(std::move(models)),
      devices_(all_devices(cluster)),
      workers_(cluster, backend),
      communicators_(backend),
      store_(workers_) {}

StateSchema Runtime::schema(ModelStage model_stage) const {
  return state_schema(models_.at(model_stage.role), model_stage);
}

void Runtime::create(const StagePlan& stage, const TensorMap& weights) {
  const StateSchema state = schema(stage.model_stage);
  for (const Emu& unit : units_of(stage)) {
    store_.create(unit, state);
    for (const StateComponent& component : state.components) {
      const bool is_moment =
          component.kind == StateKind::kExpAvg || component.kind == StateKind::kExpAvgSq;
      if (is_moment) {
        store_.clear(unit, component.kind);
      } else {
        store_.scatter(unit, component.kind, weights);
      }
    }
  }
}

Runtime::StageComms Runtime::connect_all(const Plan& plan) {
  StageComms comms;
  for (const StagePlan& stage : plan.stages)
    comms[stage.model_stage] = connect(stage, communicators_);
  return comms;
}

void Runtime::prepare(Plan plan) {
  auto comms = std::async(std::launch::async, [this, plan] { return connect_all(plan); });
  prepared_ = Prepared{std::move(plan), std::move(comms)};
}

void Runtime::adopt(Plan plan) {
  release();
  plan_ = std::move(plan);
  alias_generation();
  const bool is_prepared = prepared_ && prepared_->plan == plan_;
  StageComms comms = is_prepared ? prepared_->comms.get() : connect_all(plan_);
  for (const StagePlan& stage : plan_.stages) start_engines(stage, comms.at(stage.model_stage));
  prepared_.reset();
  trimming_ = std::async(std::launch::async, [this] { communicators_.trim(); });
}

void Runtime::release() { engines_.clear(); }

void Runtime::release_idle() {
  std::erase_if(engines_, [](const auto& entry) { return entry.first.first != kActorGeneration; });
}

void Runtime::remake_generation(Plan plan) {
  release();
  const EmuCollection wanted = units_of(nereus::at(plan, kActorGeneration));
  for (const Emu& unit : store_.units()) {
    if (unit.model_stage != kActorGeneration) continue;
    if (std::ranges::find(wanted, unit) == wanted.end()) store_.destroy(unit);
  }
  for (const Emu& unit : wanted) {
    if (!store_.contains(unit)) store_.create(unit, schema(kActorGeneration));
  }
  adopt(std::move(plan));
  synchronise_generation();
}

void Runtime::alias_generation() {
  const EmuCollection training = units_of(nereus::at(plan_, kActorTraining));
  const EmuCollection generation = units_of(nereus::at(plan_, kActorGeneration));
  std::vector<DeviceId> aliased;
  for (const Emu& unit : generation) {
    for (const DeviceId device : unit.devices) {
      const auto owner = std::find_if(training.begin(), training.end(), [&](const Emu& candidate) {
        return same_shards(unit, candidate, device);
      });
      if (owner == training.end()) continue;
      store_.replace(unit, device, UnitState::alias_weights(unit, store_.at(*owner, device)));
      aliased.push_back(device);
    }
  }
  weight_sync_ = reshard(training, generation, schema(kActorGeneration));
  std::erase_if(weight_sync_.moves, [&](const Move& move) {
    return std::find(aliased.begin(), aliased.end(), move.to) != aliased.end();
  });
}

void Runtime::start_engines(const StagePlan& stage, std::map<DeviceId, UnitComms> comms) {
  const ModelSpec& spec = models_.at(stage.model_stage.role).spec;
  for (const Emu& unit : units_of(stage)) {
    for (const DeviceId device : unit.devices) {
      engines_[{stage.model_stage, device}] =
          std::make_unique<UnitEngine>(spec, store_.at(unit, device), std::move(comms.at(device)));
    }
  }
}

void Runtime::restart(const std::vector<ModelStage>& model_stages) {
  const std::lock_guard lock(restarting_);
  prepared_.reset();
  std::set<DeviceId> devices;
  for (const ModelStage model_stage : model_stages) {
    for (const auto& unit : nereus::at(plan_, model_stage).units) {
      devices.insert(unit.begin(), unit.end());
    }
  }
  for (const StagePlan& stage : plan_.stages) {
    if (!engines_.contains({stage.model_stage, stage.units.front().front()})) continue;
    const bool shares = std::ranges::any_of(stage.units, [&](const auto& unit) {
      return std::ranges::any_of(unit, [&](DeviceId id) { return devices.contains(id); });
    });
    if (shares) start_engines(stage, connect(stage, communicators_));
  }
  // What a pass that ran out of memory left unused goes back to the driver.
  cuda::release_unused_memory();
}

std::map<OpClass, Seconds> Runtime::run(ModelStage model_stage, OpClass local, const Body& body) {
  const StagePlan& stage = nereus::at(plan_, model_stage);
  std::vector<DeviceId> devices;
  std::map<DeviceId, int> unit_of;
  for (int unit = 0; unit < stage.dp(); ++unit) {
    for (const DeviceId device : stage.units[unit]) {
      devices.push_back(device);
      unit_of[device] = unit;
    }
  }
  const auto engine_of = [&](DeviceId device) -> UnitEngine& {
    return *engines_.at({model_stage, device});
  };
  std::map<DeviceId, Seconds> walls;
  for (const DeviceId device : devices) walls[device] = Seconds();

  workers_.run(
      devices,
      [&](Worker& worker) {
        const Stopwatch local_timer;
        body(engine_of(worker.id()), unit_of.at(worker.id()));
        worker.synchronise();
        walls.at(worker.id()) = local_timer.elapsed();
      },
      [&](const std::string& reason) {
        for (const DeviceId device : devices) engine_of(device).comms().abort(reason);
      });

  std::map<OpClass, Seconds> by_class;
  for (const DeviceId device : devices) {
    for (const auto& [op_class, seconds] : engine_of(device).take_times(local, walls.at(device))) {
      by_class[op_class] += seconds * (1.0 / static_cast<double>(devices.size()));
    }
  }
  return by_class;
}

int64_t Runtime::updates(ModelStage model_stage) const {
  int64_t most = 0;
  for (const Emu& unit : units_of(nereus::at(plan_, model_stage))) {
    for (const DeviceId device : unit.devices) {
      most = std::max(most, store_.at(unit, device).updates);
    }
  }
  return most;
}

uint64_t Runtime::version(ModelStage model_stage) const {
  const Emu unit = units_of(nereus::at(plan_, model_stage)).front();
  return store_.at(unit, unit.devices.front()).version;
}

bool Runtime::halve_micro_batch(ModelStage model_stage, int64_t updates_before) {
  const auto stage = std::ranges::find(plan_.stages, model_stage, &StagePlan::model_stage);
  if (stage->micro_batch == 1 || updates(model_stage) != updates_before) return false;
  stage->micro_batch /= 2;
  restart({model_stage});
  return true;
}

bool Runtime::double_waves(size_t responses) {
  const auto stage = std::ranges::find(plan_.stages, kActorGeneration, &StagePlan::model_stage);
  if (2 * static_cast<size_t>(stage->dp() * stage->waves) > responses) return false;
  stage->waves *= 2;
  restart({kActorGeneration});
  return true;
}

void Runtime::synchronise_generation() {
  const EmuCollection training = units_of(nereus::at(plan_, kActorTraining));
  const EmuCollection generation = units_of(nereus::at(plan_, kActorGeneration));
  // Also stamps the generation units with the training units' weight version.
  store_.copy(weight_sync_, training, generation);
}

std::map<DeviceId, Bytes> Runtime::peaks() const {
  std::map<DeviceId, Bytes> peaks;
  for (const DeviceId device : devices_.devices()) {
    peaks[device] = workers_.at(device).memory().peak();
  }
  return peaks;
}

std::map<DeviceId, Bytes> Runtime::current() const {
  std::map<DeviceId, Bytes> bytes;
  for (const DeviceId device : devices_.devices()) {
    bytes[device] = workers_.at(device).memory().current();
  }
  return bytes;
}

void Runtime::reset_peaks() {
  for (const DeviceId device : workers_.devices()) workers_.at(device).memory().reset_peak();
}

}  // namespace nereus
